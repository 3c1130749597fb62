// TLS 1.3 for one connection, without a socket: ciphertext goes in and comes out as bytes.
//
// Both sides prove that they hold the swarm's token, or show certificates of the same authority. A token serves as RFC
// 8446's external PSK with ephemeral Diffie-Hellman: a token that leaks later does not decrypt recorded traffic. No
// version below 1.3, no tickets, no early data, no renegotiation.
// Threads: several threads may use a context; a stream, one at a time. Ownership: streams share their context. A stream
// borrows the ciphertext that it is given during the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collab/status.h"

struct ssl_st;
struct ssl_ctx_st;
struct bio_method_st;

namespace collab::tcp {

// Either a token or the three files.
struct TlsSettings {
  std::string token;
  std::string certificate_file, key_file, authority_file;  // PEM
  // RFC 8446, 5.5: about 2^24 full records of AES-GCM under one key are safe, and links live for weeks.
  std::uint64_t key_bytes = std::uint64_t{64} << 30;
  std::string older_token = {};  // with `token`: also accepted, never used to dial
};

class TlsContext {
 public:
  // kInvalidArgument names the setting that is wrong, never its value.
  static Result<std::shared_ptr<const TlsContext>> make(const TlsSettings& settings);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  [[nodiscard]] bool by_token() const { return !keys_.empty(); }
  // Whether a connection with this key may begin. With certificates there is no key, and it always may.
  [[nodiscard]] bool accepts(std::string_view key) const;

 private:
  friend class TlsStream;
  friend struct TlsCallbacks;
  TlsContext() = default;
  Status take_token(const std::string& token);
  Status take_files(const TlsSettings& settings);

  ssl_ctx_st* context_ = nullptr;
  bio_method_st* bio_ = nullptr;
  struct Key {
    std::vector<unsigned char> secret;
    std::string identity;  // tells keys apart and reveals nothing else about them
  };
  std::vector<Key> keys_;  // diallers use the first one; empty: certificates
  std::uint64_t key_bytes_ = 0;
};

class TlsStream {
 public:
  static constexpr std::size_t kMostAnswers = std::size_t{1} << 20;  // several times the size of one encrypted batch

  TlsStream(std::shared_ptr<const TlsContext> context, bool dialler);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Ciphertext that arrived. Borrowed until handshake() and read() have consumed it.
  void incoming(std::span<const std::byte> ciphertext) { in_ = ciphertext; }
  // Continues the handshake as far as possible; true once it is complete. kRefused: the other side does not hold our
  // token.
  Result<bool> handshake();
  [[nodiscard]] bool open() const { return open_; }
  // With a token, once the connection is open: a value that tells its key from other keys and reveals nothing else
  // about it.
  [[nodiscard]] std::string_view key() const { return key_; }
  // Once the connection is open: the common name and the alternative DNS names of the other side's certificate. None
  // with a token.
  [[nodiscard]] std::vector<std::string> names() const;
  // Reads at most `into`.size() bytes. 0: no more for now. Fails if the other side asks for new keys again and again
  // without reading the answers, so that more than kMostAnswers bytes of answers wait.
  Result<std::size_t> read(std::span<std::byte> into);
  Status write(std::span<const std::byte> plain);

  // Ciphertext to send.
  [[nodiscard]] std::span<const std::byte> outgoing() const { return std::span(out_).subspan(sent_); }
  void sent(std::size_t bytes);

 private:
  friend struct TlsCallbacks;
  [[nodiscard]] Status failure(int result);

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_ = nullptr;
  std::string_view key_;  // in the context
  bool open_ = false;
  bool heard_ = false;           // the other side has accepted us
  bool stranger_ = false;        // the other side named a key that is not ours
  std::string doubt_;            // why the other side's certificate is not accepted
  std::uint64_t under_key_ = 0;  // bytes written since the last key change
  std::span<const std::byte> in_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
};

}  // namespace collab::tcp
