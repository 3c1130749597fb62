// A peer that asks for new keys, as TLS 1.3 allows, and reads the answers or does not.
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <string>
#include <vector>

#include "transport/tcp/tls/tcp_tls.h"

namespace collab::tcp {
namespace {

std::string file(const std::string& name) { return std::string(COLLAB_CERTIFICATES) + "/" + name; }

// Dials as OpenSSL does it by itself.
class Asker {
 public:
  Asker() : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_use_certificate_chain_file(context_, file("site.pem").c_str());
    SSL_CTX_use_PrivateKey_file(context_, file("site.key").c_str(), SSL_FILETYPE_PEM);
    ssl_ = SSL_new(context_);
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in_, -1);
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_connect_state(ssl_);
  }
  ~Asker() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  bool handshake() { return SSL_do_handshake(ssl_) == 1; }
  void hears(TlsStream& stream) {
    const auto bytes = stream.outgoing();
    if (!bytes.empty()) BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
    stream.sent(bytes.size());
  }
  void reads() {
    std::byte none{};
    SSL_read(ssl_, &none, 1);
  }
  // Ciphertext that asks so many times.
  std::vector<std::byte> asks(int times) {
    for (int i = 0; i < times; ++i) {
      SSL_key_update(ssl_, SSL_KEY_UPDATE_REQUESTED);
      SSL_do_handshake(ssl_);
    }
    return says();
  }
  std::vector<std::byte> says() {
    std::vector<std::byte> bytes(BIO_ctrl_pending(out_));
    if (!bytes.empty()) BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  BIO* in_;
  BIO* out_;
};

class TcpKeyUpdates : public ::testing::Test {
 protected:
  TcpKeyUpdates() {
    EXPECT_FALSE(asker_.handshake());
    EXPECT_FALSE(*hears());
    asker_.hears(stream_);
    EXPECT_TRUE(asker_.handshake());
    EXPECT_TRUE(*hears());
  }
  Result<bool> hears() {
    bytes_ = asker_.says();
    stream_.incoming(bytes_);
    return stream_.handshake();
  }
  Result<std::size_t> ask(int times) {
    bytes_ = asker_.asks(times);
    stream_.incoming(bytes_);
    std::vector<std::byte> into(100);
    return stream_.read(into);
  }
  Asker asker_;
  std::vector<std::byte> bytes_;
  TlsStream stream_{*TlsContext::make({"", file("site.pem"), file("site.key"), file("authority.pem")}), false};
};

TEST_F(TcpKeyUpdates, APeerThatDoesNotReadTheAnswersIsDropped) {
  Result<std::size_t> read = std::size_t{0};
  for (int i = 0; i < 60 && read.ok(); ++i) read = ask(1000);
  ASSERT_FALSE(read.ok()) << stream_.outgoing().size() << " bytes wait";
  EXPECT_NE(read.status().message().find("[tls.key-updates]"), std::string::npos) << read.status().message();
  EXPECT_LT(stream_.outgoing().size(), 2 * TlsStream::kMostAnswers);
}

TEST_F(TcpKeyUpdates, APeerThatReadsTheAnswersMayKeepAsking) {
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(ask(1000).ok());
    asker_.hears(stream_);
    asker_.reads();
  }
}

}  // namespace
}  // namespace collab::tcp
