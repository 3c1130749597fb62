// The error channel of the torch-free core.
//
// Functions that can fail return Status or Result<T>; nothing in the core throws.
// Threads: plain values, safe to move between threads. Ownership: each Status owns its message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace collab {

enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument,  // the caller's input is wrong; the message says what was expected
  kUnavailable,      // a peer or resource cannot be reached now
  kTimeout,          // a bounded wait ran out; the message names what was waited for
  kRefused,          // a peer said no, in words
  kOutdated,         // the other sites are at a later point than the caller
  kCorrupt,          // bytes that fail a bound, a checksum or a digest
  kCancelled,        // the work was cancelled on purpose
  kInternal,         // a bug or a failed system call
};

[[nodiscard]] constexpr std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kTimeout: return "timeout";
    case StatusCode::kRefused: return "refused";
    case StatusCode::kOutdated: return "outdated";
    case StatusCode::kCorrupt: return "corrupt";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] std::string to_string() const {
    return ok() ? std::string("ok") : std::string(collab::to_string(code_)) + ": " + message_;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

[[nodiscard]] inline Status invalid_argument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
[[nodiscard]] inline Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
[[nodiscard]] inline Status timed_out(std::string message) { return {StatusCode::kTimeout, std::move(message)}; }
[[nodiscard]] inline Status refused(std::string message) { return {StatusCode::kRefused, std::move(message)}; }
[[nodiscard]] inline Status outdated(std::string message) { return {StatusCode::kOutdated, std::move(message)}; }
[[nodiscard]] inline Status corrupt(std::string message) { return {StatusCode::kCorrupt, std::move(message)}; }
[[nodiscard]] inline Status cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
[[nodiscard]] inline Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// Prints to stderr and aborts: for broken invariants only, never for bad input.
[[noreturn]] void panic(std::string_view message, const char* file, int line);

#define COLLAB_CHECK(condition, message)                              \
  do {                                                                \
    if (!(condition)) ::collab::panic((message), __FILE__, __LINE__); \
  } while (false)

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT(google-explicit-constructor)
    COLLAB_CHECK(!std::get<1>(state_).ok(), "a Result made from an ok Status has no value");
  }

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<1>(state_); }

  [[nodiscard]] T& value() & {
    check();
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    check();
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    check();
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void check() const { COLLAB_CHECK(ok(), std::get<1>(state_).to_string()); }
  std::variant<T, Status> state_;
};

// `COLLAB_RETURN_IF_ERROR(expr);` leaves the function with the Status when it is not ok.
#define COLLAB_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::collab::Status collab_status_ = (expr); !collab_status_.ok()) return collab_status_; \
  } while (false)

}  // namespace collab
