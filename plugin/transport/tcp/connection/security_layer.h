// What protects a connection, TLS or nothing, and how far that is settled. The first byte of an accepted connection
// tells whether it uses TLS. A dialler chooses by its own first byte, and may be refused in the clear.
//
// Threads: one at a time. Ownership: a connection's own; owns its TLS stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/tls/tcp_keys.h"
#include "transport/tcp/tls/tcp_tls.h"

namespace collab::tcp {

class SecurityLayer {
 public:
  void dial() { dialled_ = true; }
  [[nodiscard]] bool dialled() const { return dialled_; }
  // A dialler's, once connected; null: in the clear.
  Status begin(TlsKeys* keys);
  enum class FirstByte : std::uint8_t {
    kProceeds,  // TLS, or a refusal in the clear that answers a dial in TLS
    kClear,     // accepted, in the clear as all is here
    kForeign,   // no transport of ours
    kMismatch,  // one side is for TLS and the other is not
  };
  [[nodiscard]] FirstByte settle(std::byte first, TlsKeys* keys);  // null: in the clear
  [[nodiscard]] bool settled() const { return first_byte_seen_; }

  // What comes is frames as they are.
  [[nodiscard]] bool clear() const { return tls_ == nullptr || unauthenticated_; }
  // So it is known to be before more has come.
  [[nodiscard]] bool known_clear() const { return (first_byte_seen_ || dialled_) && tls_ == nullptr; }
  [[nodiscard]] TlsStream* tls() { return tls_.get(); }  // null: in the clear
  [[nodiscard]] bool has_outgoing() const { return tls_ != nullptr && !tls_->outgoing().empty(); }
  // Goes on with TLS's; true once it is complete.
  Result<bool> handshake();

  // It is more than open: a ClientHello came, and fits (with a token: was made with it); in the clear, the first byte.
  [[nodiscard]] bool hello_received() const { return hello_received_; }
  // It answers in the clear where all is encrypted: it may only refuse, and what it says may be anybody's word.
  [[nodiscard]] bool unauthenticated() const { return unauthenticated_; }
  [[nodiscard]] std::vector<std::string> authenticated_names() const;
  [[nodiscard]] bool fits(const TlsContext& keys) const { return tls_ == nullptr || keys.accepts(tls_->key()); }

 private:
  std::unique_ptr<TlsStream> tls_;
  bool dialled_ = false;
  bool first_byte_seen_ = false;
  bool hello_received_ = false;
  bool unauthenticated_ = false;
};

}  // namespace collab::tcp
