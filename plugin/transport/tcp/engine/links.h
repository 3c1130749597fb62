// Which links there are: how they are made and found, and how they end.
//
// Threads: the IO thread, except for next_id(). Ownership: owns the links. A link that has ended stays until no
// function on the stack can refer to it.
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
  TcpLink& make(LinkId id, const std::string& address);                  // empty: the other side dials
  // The link dials, or was accepted. From now on it is found by its name on the wire.
  void name(const TcpLink& link) { by_name_[link.name()] = link.id(); }
  [[nodiscard]] TcpLink* find(LinkId id);
  [[nodiscard]] TcpLink* find(const Id& name);
  [[nodiscard]] bool empty() const { return links_.empty(); }
  // What messages of the data lane cost beside their own bytes; counts links that have ended and are not gone yet, too.
  [[nodiscard]] std::size_t data_cost() const;
  [[nodiscard]] const std::map<LinkId, std::unique_ptr<TcpLink>>& all() const { return links_; }
  [[nodiscard]] std::vector<LinkId> ids() const;  // for callers that may end some links

  void end(TcpLink& link, const Status& why);
  void end_with_reason(TcpLink& link, const Status& why);  // the other side is told why, too
  [[nodiscard]] bool ended_well(const Id& name) const;
  // The other sides hear of it at once, if the system takes the message.
  void stop();

 private:
  EngineParts& all_;
  std::atomic<std::uint64_t> next_{1};
  std::map<LinkId, std::unique_ptr<TcpLink>> links_;
  std::map<Id, LinkId> by_name_;
  std::deque<Id> ended_well_;  // the newest
  std::vector<std::unique_ptr<TcpLink>> graveyard_;
};

}  // namespace collab::tcp
