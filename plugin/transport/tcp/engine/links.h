// Which links there are: how they are made and found, and how they end.
//
// Threads: the IO thread, except for next_id(). Ownership: owns the links. An ended link is kept until no function on
// the stack can refer to it.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Links {
 public:
  explicit Links(EngineParts& all) : all_(all) {}

  [[nodiscard]] LinkId next_id() { return LinkId(next_.fetch_add(1)); }  // from any thread
  TcpLink& make(LinkId id, const std::string& address);                  // empty address: the other side dials
  // Makes find() know a dialling or accepted link by its name on the wire.
  void name(const TcpLink& link) { by_name_[link.name()] = link.id(); }
  [[nodiscard]] TcpLink* find(LinkId id);
  [[nodiscard]] TcpLink* find(const Id& name);
  [[nodiscard]] bool empty() const { return links_.empty(); }
  // Bytes of memory that messages of the data lanes take besides their contents; includes ended links that are still
  // kept.
  [[nodiscard]] std::size_t data_cost() const;
  [[nodiscard]] const std::map<LinkId, std::unique_ptr<TcpLink>>& all() const { return links_; }
  [[nodiscard]] std::vector<LinkId> ids() const;  // a copy, for callers that may end links

  void end(TcpLink& link, const Status& why);
  void end_with_reason(TcpLink& link, const Status& why);  // also tells the other side why
  [[nodiscard]] bool ended_well(const Id& name) const;
  // Ends all links. The other sides learn of it at once, if the system takes the message.
  void stop();

 private:
  EngineParts& all_;
  std::atomic<std::uint64_t> next_{1};
  std::map<LinkId, std::unique_ptr<TcpLink>> links_;
  std::map<Id, LinkId> by_name_;
  std::deque<Id> ended_well_;  // the most recent ones
  std::vector<std::unique_ptr<TcpLink>> graveyard_;
};

}  // namespace collab::tcp
