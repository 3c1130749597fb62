#include "transport/tcp/tls/tcp_tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "core/base/text.h"
#include "transport/tcp/tls/tcp_token.h"

namespace collab::tcp {
namespace {

constexpr std::size_t kKeyBytes = 32;  // of SHA-256

std::string read_all(BIO* memory) {
  char* text = nullptr;
  const long length = BIO_get_mem_data(memory, &text);
  std::string read(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  BIO_free(memory);
  return read;
}

// The subject of a certificate, and until when it is valid.
std::string describe(const X509& certificate) {
  BIO* const memory = BIO_new(BIO_s_mem());
  if (memory == nullptr) return "a certificate";
  X509_NAME_print_ex(memory, X509_get_subject_name(&certificate), 0, XN_FLAG_RFC2253);
  BIO_puts(memory, ", valid until ");
  ASN1_TIME_print(memory, X509_get0_notAfter(&certificate));
  return "the certificate of " + read_all(memory);
}

// Why a file cannot be read. Empty: it can.
std::string why_unreadable(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::strerror(errno);
  file.peek();
  return file.bad() ? std::strerror(errno) : "";
}

std::string last_error() {
  const unsigned long code = ERR_peek_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason != nullptr ? reason : "no reason given";
}

}  // namespace

struct TlsCallbacks {
  static TlsStream& stream_of(SSL* ssl) { return *static_cast<TlsStream*>(SSL_get_app_data(ssl)); }

  static SSL_SESSION* session(SSL* ssl, const TlsContext::Key& key) {
    constexpr std::array<unsigned char, 2> kAes128Sha256{0x13, 0x01};
    SSL_SESSION* const made = SSL_SESSION_new();
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kAes128Sha256.data());
    if (made == nullptr || cipher == nullptr ||
        SSL_SESSION_set1_master_key(made, key.secret.data(), key.secret.size()) != 1 ||
        SSL_SESSION_set_cipher(made, cipher) != 1 || SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) != 1) {
      SSL_SESSION_free(made);
      return nullptr;
    }
    return made;
  }

  static int use(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                 SSL_SESSION** found) {
    const TlsContext::Key& key = stream_of(ssl).context_->keys_.front();
    stream_of(ssl).key_ = key.identity;
    *identity = nullptr;
    *length = 0;
    *found = nullptr;
    if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 1;  // not with this key
    *found = session(ssl, key);
    if (*found == nullptr) return 0;
    *identity = reinterpret_cast<const unsigned char*>(key.identity.data());
    *length = key.identity.size();
    return 1;
  }

  static int find(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** found) {
    TlsStream& stream = stream_of(ssl);
    *found = nullptr;
    for (const TlsContext::Key& key : stream.context_->keys_) {
      if (length != key.identity.size() || CRYPTO_memcmp(identity, key.identity.data(), length) != 0) continue;
      stream.key_ = key.identity;
      *found = session(ssl, key);
      return *found != nullptr ? 1 : 0;
    }
    stream.stranger_ = true;
    return 1;  // continues without a key, and fails for lack of a certificate
  }

  static int verify(int sound, X509_STORE_CTX* store) {
    if (sound == 1) return 1;
    auto* const ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    const X509* const certificate = X509_STORE_CTX_get_current_cert(store);
    std::string& doubt = stream_of(ssl).doubt_;
    doubt = X509_verify_cert_error_string(X509_STORE_CTX_get_error(store));
    if (certificate != nullptr) doubt += ": " + describe(*certificate);
    return 0;
  }

  // A passphrase prompt would block a process without a terminal.
  static int no_passphrase(char*, int, int, void*) { return 0; }

  static int bio_write(BIO* bio, const char* data, int length) {
    auto& out = static_cast<TlsStream*>(BIO_get_data(bio))->out_;
    const auto* const bytes = reinterpret_cast<const std::byte*>(data);
    out.insert(out.end(), bytes, bytes + length);
    return length;
  }
  static int bio_read(BIO* bio, char* into, int length) {
    auto& in = static_cast<TlsStream*>(BIO_get_data(bio))->in_;
    BIO_clear_retry_flags(bio);
    if (in.empty()) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const std::size_t taken = std::min(in.size(), static_cast<std::size_t>(length));
    std::memcpy(into, in.data(), taken);
    in = in.subspan(taken);
    return static_cast<int>(taken);
  }
  static long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
  static int bio_create(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }
};

// ---- the context ---------------------------------------------------------------------------------

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const TlsSettings& settings) {
  std::shared_ptr<TlsContext> made(new TlsContext);
  made->context_ = SSL_CTX_new(TLS_method());
  static const int kKind = BIO_get_new_index();  // a process has few of them
  made->bio_ = kKind > 0 ? BIO_meth_new(kKind | BIO_TYPE_SOURCE_SINK, "collab") : nullptr;
  SSL_CTX* const context = made->context_;
  if (context == nullptr || made->bio_ == nullptr)
    return internal_error("OpenSSL cannot start: " + last_error() + " [tls.openssl]");
  BIO_meth_set_write(made->bio_, TlsCallbacks::bio_write);
  BIO_meth_set_read(made->bio_, TlsCallbacks::bio_read);
  BIO_meth_set_ctrl(made->bio_, TlsCallbacks::bio_control);
  BIO_meth_set_create(made->bio_, TlsCallbacks::bio_create);
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  made->key_bytes_ = settings.key_bytes;
  COLLAB_RETURN_IF_ERROR(settings.token.empty() ? made->take_files(settings) : made->take_token(settings.token));
  if (!settings.older_token.empty()) COLLAB_RETURN_IF_ERROR(made->take_token(settings.older_token));
  return std::shared_ptr<const TlsContext>(std::move(made));
}

TlsContext::~TlsContext() {
  for (Key& key : keys_) OPENSSL_cleanse(key.secret.data(), key.secret.size());
  SSL_CTX_free(context_);
  BIO_meth_free(bio_);
}

bool TlsContext::accepts(std::string_view key) const {
  return key.empty() || std::ranges::any_of(keys_, [key](const Key& each) { return each.identity == key; });
}

Status TlsContext::take_token(const std::string& token) {
  COLLAB_RETURN_IF_ERROR(check_token(token));
  auto key = key_of_token(token, "tls 1.3 external psk", kKeyBytes);
  const auto name = key_of_token(token, "identity", 8);
  if (!key.ok()) return key.status();
  if (!name.ok()) return name.status();
  std::string identity = "collab-";
  for (const unsigned char byte : *name) identity += hexadecimal(byte, 2);
  keys_.push_back({std::move(*key), std::move(identity)});
  // The cipher suites for a key with SHA-256.
  SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_psk_use_session_callback(context_, TlsCallbacks::use);
  SSL_CTX_set_psk_find_session_callback(context_, TlsCallbacks::find);
  return {};
}

Status TlsContext::take_files(const TlsSettings& settings) {
  const auto wrong = [](const char* knob, const std::string& file, const char* expected) {
    const std::string unreadable = file.empty() ? "" : why_unreadable(file);
    return invalid_argument(std::string(knob) + ": expected " + expected + " in PEM, got " +
                            (file.empty() ? "nothing" : file) + " (" +
                            (unreadable.empty() ? last_error() : unreadable) +
                            "); COLLAB_TLS_CERT, COLLAB_TLS_KEY and COLLAB_TLS_CA go together [tls.file]");
  };
  SSL_CTX_set_default_passwd_cb(context_, TlsCallbacks::no_passphrase);
  ERR_clear_error();
  SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  if (SSL_CTX_use_certificate_chain_file(context_, settings.certificate_file.c_str()) != 1) {
    return wrong("COLLAB_TLS_CERT", settings.certificate_file, "this site's certificate");
  }
  const X509* const own = SSL_CTX_get0_certificate(context_);
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
    return invalid_argument("COLLAB_TLS_CERT: " + settings.certificate_file + " has expired: " + describe(*own) +
                            " [tls.expired]");
  }
  if (SSL_CTX_use_PrivateKey_file(context_, settings.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context_) != 1) {
    return wrong("COLLAB_TLS_KEY", settings.key_file, "the private key of COLLAB_TLS_CERT, not encrypted,");
  }
  if (settings.authority_file.empty() || SSL_CTX_load_verify_file(context_, settings.authority_file.c_str()) != 1) {
    return wrong("COLLAB_TLS_CA", settings.authority_file, "the certificate of the swarm's own authority");
  }
  // Only leaves of the authority count: a certificate that a site's own certificate has signed belongs to no site. Each
  // certificate in COLLAB_TLS_CA is an authority, even if another has signed it.
  SSL_CTX_set_verify_depth(context_, 0);
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context_), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, TlsCallbacks::verify);
  return {};
}

// ---- a stream ------------------------------------------------------------------------------------

TlsStream::TlsStream(std::shared_ptr<const TlsContext> context, bool dialler)
    : context_(std::move(context)), ssl_(SSL_new(context_->context_)) {
  BIO* const bio = BIO_new(context_->bio_);
  COLLAB_CHECK(ssl_ != nullptr && bio != nullptr, "OpenSSL is out of memory");
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  if (dialler) {
    SSL_set_connect_state(ssl_);
    SSL_set_verify(ssl_, SSL_VERIFY_PEER,
                   TlsCallbacks::verify);  // with a token, no certificate is accepted: there is no authority
  } else {
    SSL_set_accept_state(ssl_);
  }
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

void TlsStream::sent(std::size_t bytes) {
  sent_ += bytes;
  if (sent_ < out_.size() - sent_) return;
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent_));  // moves less than was sent
  sent_ = 0;
}

Status TlsStream::failure(int result) {
  const int kind = SSL_get_error(ssl_, result);
  const unsigned long code = ERR_peek_error();
  if (kind == SSL_ERROR_ZERO_RETURN) {
    ERR_clear_error();
    return unavailable("the other side ended the connection");
  }
  const int reason = ERR_GET_REASON(code);
  const std::string text = last_error();
  // A listener rejects certificates only after the dialler's handshake is done.
  if (heard_ || (open_ && context_->by_token() && !stranger_)) return unavailable("TLS broke off (" + text + ")");
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_BAD_RECORD_TYPE ||
      reason == SSL_R_UNSUPPORTED_PROTOCOL) {
    return corrupt("the other side does not speak TLS 1.3 (" + text + ") [tls.no-tls]");
  }
  if (context_->by_token()) {
    return refused(
        doubt_.empty()
            ? "its token differs from this side's: give all sites of the swarm the same COLLAB_TOKEN, made once by "
              "`collab token` [tls.other-key]"
            : "it presents a certificate, but this side has a COLLAB_TOKEN: all sites of a swarm must use "
              "the same token, or all must use certificates [tls.mixed]");
  }
  return refused("no agreement on certificates (" + (doubt_.empty() ? text : doubt_) +
                 "): both sides need COLLAB_TLS_CERT, COLLAB_TLS_KEY and the same COLLAB_TLS_CA; no certificate may "
                 "be expired or limited to client or server use; and no side may use a COLLAB_TOKEN [tls.refused]");
}

Result<bool> TlsStream::handshake() {
  if (open_) return true;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    if (context_->by_token() && SSL_session_reused(ssl_) != 1) {
      return refused(
          "it let this side in without the swarm's token: give all sites the same COLLAB_TOKEN [tls.no-key]");
    }
    open_ = true;
    return true;
  }
  if (SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) return false;
  return failure(result);
}

std::vector<std::string> TlsStream::names() const {
  std::vector<std::string> names;
  X509* const certificate = SSL_get1_peer_certificate(ssl_);
  if (certificate == nullptr) return names;
  const auto add = [&names](const ASN1_STRING* text) {
    unsigned char* utf8 = nullptr;
    const int length = ASN1_STRING_to_UTF8(&utf8, text);
    if (length > 0) names.emplace_back(reinterpret_cast<const char*>(utf8), static_cast<std::size_t>(length));
    OPENSSL_free(utf8);
  };
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    add(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  }
  auto* const others =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(others); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(others, i);
    if (name->type == GEN_DNS) add(name->d.dNSName);
  }
  GENERAL_NAMES_free(others);
  X509_free(certificate);
  return names;
}

Result<std::size_t> TlsStream::read(std::span<std::byte> into) {
  std::size_t got = 0;
  ERR_clear_error();
  const int result = SSL_read_ex(ssl_, into.data(), into.size(), &got);
  if (outgoing().size() > kMostAnswers) {
    return corrupt("the other side asks for new keys again and again and does not read the answers [tls.key-updates]");
  }
  if (result == 1) {
    heard_ = true;
    return got;
  }
  if (SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) return std::size_t{0};
  return failure(result);
}

Status TlsStream::write(std::span<const std::byte> plain) {
  if (plain.empty()) return {};
  under_key_ += plain.size();
  if (under_key_ > context_->key_bytes_) {
    under_key_ = plain.size();
    SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  std::size_t put = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(ssl_, plain.data(), plain.size(), &put);
  if (result == 1 && put == plain.size()) return {};
  return failure(result);
}

}  // namespace collab::tcp
