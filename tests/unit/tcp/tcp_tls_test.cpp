// TLS without sockets: this test carries the bytes of two streams.
#include "transport/tcp/tls/tcp_tls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace collab::tcp {
namespace {

const std::string kToken = "a-token-for-tests-0123456789abcdefghijklmnop";
const std::string kOther = "another-token-for-tests-0123456789abcdefghij";

std::shared_ptr<const TlsContext> context(const std::string& token) { return *TlsContext::make({token, "", "", ""}); }

// Carries what one has to say to the other; how its handshake stands then.
Result<bool> carry(TlsStream& from, TlsStream& to) {
  const std::vector<std::byte> bytes(from.outgoing().begin(), from.outgoing().end());
  from.sent(bytes.size());
  to.incoming(bytes);
  return to.handshake();
}

TEST(TcpTls, TheSameTokenOpens) {
  TlsStream dialler(context(kToken), true);
  TlsStream listener(context(kToken), false);
  EXPECT_FALSE(*dialler.handshake());
  EXPECT_FALSE(*carry(dialler, listener));
  EXPECT_TRUE(*carry(listener, dialler));
  EXPECT_TRUE(*carry(dialler, listener));
  const std::string text = "round 3 is committed";
  ASSERT_TRUE(dialler.write(std::as_bytes(std::span(text))).ok());
  const std::vector<std::byte> sealed(dialler.outgoing().begin(), dialler.outgoing().end());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(sealed.data()), sealed.size()).find(text), std::string::npos);
  listener.incoming(sealed);
  std::vector<std::byte> into(100);
  const auto got = listener.read(into);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(into.data()), *got), text);
  EXPECT_EQ(*listener.read(into), 0U);
}

// Keys wear out: the sender changes its own on the way, each direction by itself.
TEST(TcpTls, KeysAreChangedBeforeTheyWearOut) {
  const auto short_lived = *TlsContext::make({kToken, "", "", "", 1000});
  TlsStream dialler(short_lived, true);
  TlsStream listener(short_lived, false);
  EXPECT_FALSE(*dialler.handshake());
  EXPECT_FALSE(*carry(dialler, listener));
  EXPECT_TRUE(*carry(listener, dialler));
  EXPECT_TRUE(*carry(dialler, listener));
  const std::string text(300, 'x');
  std::size_t sealed_bytes = 0;
  for (int i = 0; i < 20; ++i) {
    for (auto [from, to] : {std::pair(&dialler, &listener), std::pair(&listener, &dialler)}) {
      ASSERT_TRUE(from->write(std::as_bytes(std::span(text))).ok());
      const std::vector<std::byte> sealed(from->outgoing().begin(), from->outgoing().end());
      from->sent(sealed.size());
      sealed_bytes += sealed.size();
      to->incoming(sealed);
      std::vector<std::byte> into(1000);
      const auto got = to->read(into);
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_EQ(*got, text.size());
    }
  }
  EXPECT_GT(sealed_bytes, 40 * (text.size() + 22)) << "some records more, with the new keys";
}

TEST(TcpTls, AnotherTokenIsRefusedByBoth) {
  TlsStream dialler(context(kToken), true);
  TlsStream listener(context(kOther), false);
  EXPECT_FALSE(*dialler.handshake());
  const auto listeners = carry(dialler, listener);
  ASSERT_FALSE(listeners.ok());
  EXPECT_EQ(listeners.status().code(), StatusCode::kRefused);
  const auto diallers = carry(listener, dialler);
  ASSERT_FALSE(diallers.ok());
  EXPECT_EQ(diallers.status().code(), StatusCode::kRefused);
  EXPECT_NE(diallers.status().message().find("COLLAB_TOKEN"), std::string::npos);
}

TEST(TcpTls, ABrokenRecordEndsIt) {
  TlsStream dialler(context(kToken), true);
  TlsStream listener(context(kToken), false);
  (void)dialler.handshake();
  (void)carry(dialler, listener);
  (void)carry(listener, dialler);
  ASSERT_TRUE(*carry(dialler, listener));
  ASSERT_TRUE(dialler.write(std::as_bytes(std::span("abc", 3))).ok());
  std::vector<std::byte> sealed(dialler.outgoing().begin(), dialler.outgoing().end());
  sealed.back() ^= std::byte{1};
  listener.incoming(sealed);
  std::vector<std::byte> into(100);
  EXPECT_FALSE(listener.read(into).ok());
}

TEST(TcpTls, GarbageIsNoHandshake) {
  for (const bool dialler : {true, false}) {
    TlsStream stream(context(kToken), dialler);
    (void)stream.handshake();
    const std::vector<std::byte> garbage(500, std::byte{0x41});
    stream.incoming(garbage);
    EXPECT_FALSE(stream.handshake().ok());
  }
}

// While one token takes the place of another, the identity says which of the two it is.
TEST(TcpTls, TheOlderTokenIsAcceptedAndNotSpoken) {
  TlsSettings both{kOther, "", "", ""};
  both.older_token = kToken;
  const auto changed = *TlsContext::make(both);
  const auto meets = [](std::shared_ptr<const TlsContext> from, std::shared_ptr<const TlsContext> to) {
    TlsStream dialler(std::move(from), true);
    TlsStream listener(std::move(to), false);
    (void)dialler.handshake();
    if (const auto heard = carry(dialler, listener); !heard.ok()) return false;
    if (const auto back = carry(listener, dialler); !back.ok()) return false;
    const auto done = carry(dialler, listener);
    return done.ok() && *done;
  };
  EXPECT_TRUE(meets(changed, changed));
  EXPECT_TRUE(meets(context(kToken), changed)) << "who has only the older one dials";
  EXPECT_TRUE(meets(changed, context(kOther)));
  EXPECT_FALSE(meets(changed, context(kToken))) << "it is not spoken";
  EXPECT_FALSE(meets(context("a-third-token-0123456789abcdefghijklmnop"), changed));
}

std::shared_ptr<const TlsContext> certified(const std::string& name) {
  const std::string folder = COLLAB_CERTIFICATES "/chain/";
  const auto made = TlsContext::make({"", folder + name + ".pem", folder + name + ".key", folder + "authority.pem"});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *made;
}

// How the listener's handshake with this dialler ends.
Result<bool> admitted(const std::string& dialler_name, const std::string& listener_name) {
  TlsStream dialler(certified(dialler_name), true);
  TlsStream listener(certified(listener_name), false);
  (void)dialler.handshake();
  (void)carry(dialler, listener);
  const Result<bool> back = carry(listener, dialler);
  if (!back.ok()) return back;
  return carry(dialler, listener);
}

// A site whose certificate says CA:TRUE is a site, and no authority: the chain of what it has signed ends at the
// authority, and is one certificate too long.
TEST(TcpTls, ASitesCertificateCannotSignAnother) {
  EXPECT_TRUE(*admitted("site", "site"));
  EXPECT_TRUE(*admitted("branch", "site"));
  for (const auto& [dialler, listener] : {std::pair("guest", "site"), std::pair("site", "guest")}) {
    const Result<bool> guests = admitted(dialler, listener);
    ASSERT_FALSE(guests.ok()) << dialler;
    EXPECT_EQ(guests.status().code(), StatusCode::kRefused);
    EXPECT_NE(guests.status().message().find("no agreement on certificates"), std::string::npos);
  }
}

TEST(TcpTls, AShortTokenIsRefusedUnseen) {
  const auto made = TlsContext::make({"hunter2", "", "", ""});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message().find("hunter2"), std::string::npos);
}

}  // namespace
}  // namespace collab::tcp
