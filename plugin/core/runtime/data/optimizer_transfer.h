// Moves the bytes of optimizer states: those that are served to other sites, and the one that is fetched.
// OptimizerLease and the Site machine decide which site gets what, and when.
//
// Memory: at a member that serves, one copy until the last fetching site has it or falls silent (OptimizerLease); at a
// joiner, one. Threads: the node's loop thread; wanted() any. Ownership: the copy that is served, the one that is
// fetched; borrows transport.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "collab/session.h"
#include "collab/transport.h"
#include "core/base/rate_limit.h"
#include "core/protocol/actions.h"
#include "core/protocol/site/optimizer_lease.h"

namespace collab {

class OptimizerTransfer {
 public:
  static constexpr std::uint64_t kFirstToken = std::uint64_t{1} << 63;  // the data plane's tokens are lower

  OptimizerTransfer(Transport& transport, const Clock& clock, Duration limit, std::string why_none)
      : transport_(transport), clock_(clock), lease_(limit), why_none_(std::move(why_none)) {}

  // ---- serving
  [[nodiscard]] bool wanted() const { return wanted_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  // From now on copies are made, or, if `why_none` says why, no longer made.
  void serve(std::string why_none);
  // A `why_none` that is not empty: no state is served this time, although there is one.
  void asked(const protocol::ServeOptimizer& action, const std::string& why_none = {});
  void being_given() { wanted_ = false; }  // any thread
  void given(Result<OptimizerCopy> copy);
  void sent(std::uint64_t token);
  void link_closed(LinkId link);
  void tick() { run(protocol::LeaseTick{}); }
  [[nodiscard]] TimePoint next_deadline() const { return lease_.next_deadline(); }

  // ---- fetching
  void begin_search() { asked_at_ = clock_.now(); }
  void offered(const protocol::OptimizerOffered& action) { offer_ = action; }
  // Describes a part for the Site machine; its payload is kept for take_part().
  [[nodiscard]] protocol::OptimizerPart arrived(LinkId link, const wire::Chunk& chunk, BufferPtr payload);
  void begin_taking();
  void take_part(const protocol::TakeOptimizerPart& action);
  // The whole state, if it is the one that was offered.
  [[nodiscard]] Result<BufferPtr> complete();
  // {source, bytes, seconds} of the last fetch, or the reason why nothing was fetched.
  [[nodiscard]] protocol::Note ended(const std::string& cold);

 private:
  void run(const protocol::LeaseEvent& event);
  void act(const protocol::MakeCopy& action);
  void act(const protocol::DropCopy& action);
  void act(const protocol::SendOptimizerState& action);
  void act(const protocol::SendPart& action);
  void act(const protocol::RefuseFetcher& action);

  Transport& transport_;
  const Clock& clock_;
  protocol::OptimizerLease lease_;
  std::atomic<bool> wanted_ = false;
  std::uint64_t bytes_sent_ = 0;
  RateLimit asks_{std::chrono::seconds(10)}, copies_{std::chrono::seconds(10)}, refusals_{std::chrono::seconds(10)};
  std::string why_none_;  // empty: there is one to serve
  std::shared_ptr<const OptimizerCopy> copy_;
  std::map<std::uint64_t, LinkId> in_flight_;  // by token
  std::uint64_t next_token_ = kFirstToken;

  protocol::OptimizerOffered offer_;
  BufferPtr taken_;
  BufferPtr arriving_;
  TimePoint asked_at_{};
};

}  // namespace collab
