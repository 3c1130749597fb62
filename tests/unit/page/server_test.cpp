// The page's server over loopback sockets: answers, limits, and its end while clients are in the middle of a request.
// Python tests HTTPS (test_page.py). This file tests what happens to clients that do not speak it.
#include "tools/page/server.h"

#include <gmock/gmock.h>
#include <openssl/ssl.h>

#include <atomic>
#include <csignal>
#include <list>

#include "tests/transport/plain_socket.h"

namespace collab::page {
namespace {

using collab::testing::PlainSocket;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kReadLimitMs = 60'000;

const std::string kCertificates = COLLAB_CERTIFICATES;

class PageServer : public ::testing::Test {
 protected:
  explicit PageServer(bool tls = false) {
    if (tls) {
      EXPECT_TRUE(server_->use_tls(kCertificates + "/site.pem", kCertificates + "/site.key").ok());
    }
    const Result<HostPort> bound = server_->listen({"127.0.0.1", 0});
    EXPECT_TRUE(bound.ok()) << bound.status().to_string();
    address_ = to_string(*bound);
    EXPECT_TRUE(server_->is_loopback());
    server_->start(
        [this](const Request& request) {
          ++answered_;
          return Answer{200,
                        "text/plain",
                        request.method + " " + request.target + " " + request.host + " " + request.network,
                        {{"X-Test", "yes"}}};
        },
        [this] { ++ends_; });
  }
  std::string ask(std::string_view bytes) const {
    PlainSocket socket;
    EXPECT_TRUE(socket.connect_to(address_));
    socket.write(bytes);
    return socket.read_all(kReadLimitMs);
  }

  std::atomic<int> answered_ = 0, ends_ = 0;
  ManualClock clock_;  // stands still
  std::unique_ptr<Server> server_ = std::make_unique<Server>(clock_);
  std::string address_;
};

TEST_F(PageServer, AnswersOneRequestAConnection) {
  const std::string answer = ask("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Test: yes\r\n"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nGET /a h 127.0.0.1"));
  EXPECT_EQ(answered_, 1);
}

TEST_F(PageServer, ARequestMayComeInPieces) {
  const std::string whole = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const std::size_t cut : {3U, 17U, 21U, 26U}) {  // in the first line, after it, in a field, in what ends the head
    PlainSocket socket;
    ASSERT_TRUE(socket.connect_to(address_));
    socket.write(whole.substr(0, cut));
    EXPECT_THAT(ask(whole), EndsWith("GET /a h 127.0.0.1")) << "the server has read the piece";
    socket.write(whole.substr(cut));
    EXPECT_THAT(socket.read_all(kReadLimitMs), EndsWith("GET /a h 127.0.0.1")) << cut;
  }
  EXPECT_EQ(answered_, 8);
}

TEST_F(PageServer, AHeadHasALimit) {
  const std::string begin = "GET / HTTP/1.1\r\nHost: h\r\nX: ", end = "\r\n\r\n";
  const std::string most(Server::kMaxHead - begin.size() - end.size(), 'x');
  EXPECT_THAT(ask(begin + most + end), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(ask(begin + most + std::string(begin.size(), 'x') + end), "") << "of fields alone too many bytes";
}

TEST_F(PageServer, ABodyAfterTheHeadIsNotRead) {
  EXPECT_THAT(ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"), EndsWith("POST /a h 127.0.0.1"));
}

TEST_F(PageServer, AHeadRequestGetsNoBody) {
  const std::string answer = ask("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 18\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(PageServer, AMalformedRequestIsNotAnswered) {
  for (const std::string& bytes : {std::string("\r\n\r\n\r\n"), std::string("hello\r\n\r\n"), std::string(100, '\0'),
                                   "GET / HTTP/1.1\r\nX: " + std::string(2 * Server::kMaxHead, 'x')}) {
    EXPECT_EQ(ask(bytes), "");
  }
  EXPECT_EQ(answered_, 0);
}

// Closed by the server, long before the wait is over.
TEST_F(PageServer, ASilentConnectionIsClosed) { EXPECT_EQ(ask("GET / HTTP/1.1\r\n"), ""); }

TEST_F(PageServer, ClosesTheOldestOfTooManyConnections) {
  std::list<PlainSocket> many(Server::kMaxConnections + 10);
  for (PlainSocket& one : many) ASSERT_TRUE(one.connect_to(address_));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(many.front().read_all(kReadLimitMs), "");
  many.back().write("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(many.back().read_all(kReadLimitMs), StartsWith("HTTP/1.1 200")) << "the time of none is over";
}

TEST_F(PageServer, ClosesTheOldestConnectionOfTheBusiestNetwork) {
  PlainSocket viewer;
  ASSERT_TRUE(viewer.connect_to(address_));
  std::list<PlainSocket> many(3 * Server::kMaxConnections);
  for (PlainSocket& one : many) {
    one.come_from(INADDR_LOOPBACK + 1);
    ASSERT_TRUE(one.connect_to(address_));
  }
  many.back().write("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(many.back().read_all(kReadLimitMs), HasSubstr("GET /  127.0.0.2")) << "all of them have come";
  viewer.write("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(viewer.read_all(kReadLimitMs), HasSubstr("GET /  127.0.0.1")) << "though it is the oldest of all";
}

TEST_F(PageServer, APortInUseIsNamed) {
  Server other(clock_);
  const Result<HostPort> bound = other.listen(parse_host_port(address_).value());
  ASSERT_FALSE(bound.ok());
  EXPECT_THAT(bound.status().message(), HasSubstr("at port " + address_.substr(address_.rfind(':') + 1)));
  EXPECT_THAT(bound.status().message(), HasSubstr("[page.port-in-use]"));
}

TEST_F(PageServer, EndsWhileOthersAreInTheMiddleOfSomething) {
  PlainSocket half;
  ASSERT_TRUE(half.connect_to(address_));
  half.write("GET / HT");
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  server_.reset();
  EXPECT_GE(ends_, 1) << "what is to be kept is kept";
  EXPECT_EQ(half.read_all(kReadLimitMs), "");
}

class PageServerInTls : public PageServer {
 protected:
  PageServerInTls() : PageServer(true) {}
};

TEST_F(PageServerInTls, APlainTextRequestIsNotAnswered) {
  for (const char* bytes : {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "\r\n\r\n", "hello"}) {
    EXPECT_THAT(ask(bytes), ::testing::Not(HasSubstr("HTTP"))) << bytes;
  }
  EXPECT_EQ(answered_, 0);
}

// Closed by the server, long before the wait is over.
TEST_F(PageServerInTls, AHandshakeHasItsTime) {
  PlainSocket silent, half;
  ASSERT_TRUE(silent.connect_to(address_) && half.connect_to(address_));
  half.write({"\x16\x03\x01\x02\x00\x01", 6});  // a record of 512 bytes begins, and a ClientHello in it
  EXPECT_EQ(silent.read_all(kReadLimitMs), "");
  EXPECT_EQ(half.read_all(kReadLimitMs), "");
}

TEST_F(PageServerInTls, ANetworkMakesABoundedNumberOfHandshakesASecond) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to what may be closed
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const auto shakes_hands = [&](in_addr_t from) {
    PlainSocket socket;
    socket.come_from(from);
    EXPECT_TRUE(socket.connect_to(address_));
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), SSL_free);
    SSL_set_fd(tls.get(), socket.fd());
    return SSL_connect(tls.get()) == 1;
  };
  const auto how_many = [&] {
    int made = 0;
    while (made < 200 && shakes_hands(INADDR_LOOPBACK + 1)) ++made;
    return made;
  };
  EXPECT_EQ(how_many(), Shares::kKnownASecond);
  EXPECT_TRUE(shakes_hands(INADDR_LOOPBACK)) << "another network has its own share";
}

TEST_F(PageServerInTls, AWrongFileIsNamed) {
  const auto said = [this](const std::string& certificate, const std::string& key) {
    return Server(clock_).use_tls(certificate, key).message();
  };
  const std::string fits = kCertificates + "/site.pem";
  EXPECT_THAT(said("/nonexistent.pem", fits), HasSubstr("--http-cert: expected a certificate"));
  EXPECT_THAT(said(fits, ""),
              HasSubstr("--http-key: expected the private key of --http-cert, not encrypted, in PEM, got nothing"));
  EXPECT_THAT(said(fits, kCertificates + "/stranger.key"), HasSubstr("mismatch"));
}

}  // namespace
}  // namespace collab::page
