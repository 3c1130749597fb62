// The links, how they open and how they end.
//
// Threads: draw_id() from any thread; all else on the progress thread. Ownership: owns the links.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "transport/ucx/ucx_link.h"
#include "transport/ucx/ucx_preamble.h"

namespace collab {

struct UcxParts;

class UcxLinks {
 public:
  explicit UcxLinks(UcxParts& all) : all_(all) {}

  [[nodiscard]] LinkId draw_id() { return LinkId(next_.fetch_add(1)); }
  UcxLink& add(LinkId id, bool dialled, const std::string& peer, const UcxLink::Token& token, TimePoint deadline);
  [[nodiscard]] UcxLink* find(LinkId id);
  [[nodiscard]] TimePoint next_deadline() const;

  void opened(UcxLink& link);
  void close(LinkId id);
  // Tells the handler, unless the handler never heard of the link.
  void end(UcxLink& link, Status why);
  void end_late(TimePoint now);  // ends links that did not open, or close, in time
  void drop() { links_.clear(); }

  void connection_failed(const UcxConnectionPtr& connection, const Status& why);
  // These return false if the message does not fit the earlier ones.
  bool welcomed(UcxLink& link);
  bool peer_closes(UcxLink& link, const Preamble& bye);
  bool peer_has_all(UcxLink& link);
  // Each side ends the link once it has taken all that the other side sent, and the other side has confirmed the same.
  void finish_close(UcxLink& link);

 private:
  void begin_close(UcxLink& link);

  UcxParts& all_;
  std::atomic<std::uint64_t> next_{1};
  std::map<LinkId, UcxLink> links_;
};

}  // namespace collab
