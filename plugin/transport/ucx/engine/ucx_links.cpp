#include "transport/ucx/engine/ucx_links.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "transport/ucx/engine/ucx_parts.h"

namespace collab {

UcxLink& UcxLinks::add(LinkId id, bool dialled, const std::string& peer, const UcxLink::Token& token,
                       TimePoint deadline) {
  return links_.try_emplace(id, id, dialled, peer, token, deadline).first->second;
}

UcxLink* UcxLinks::find(LinkId id) {
  const auto found = links_.find(id);
  return found != links_.end() ? &found->second : nullptr;
}

TimePoint UcxLinks::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [id, link] : links_) next = std::min(next, link.deadline());
  return next;
}

bool UcxLinks::welcomed(UcxLink& link) {
  if (!link.dialled() || !link.connecting()) return false;
  opened(link);
  return true;
}

void UcxLinks::opened(UcxLink& link) {
  link.opened();
  if (link.dialled()) {
    all_.calls.connected(link.id());
  } else {
    all_.calls.accepted(link.id(), link.peer());
  }
  all_.sender.pump_soon(link.id());
  if (link.closing.begun()) begin_close(link);
  all_.receiver.take_messages(link, Lane::kControl);  // messages that arrived while other connections were dialled
  all_.receiver.take_messages(link, Lane::kData);
}

void UcxLinks::close(LinkId id) {
  if (UcxLink* link = find(id); link != nullptr && !link->closing.begun()) begin_close(*link);
}

void UcxLinks::begin_close(UcxLink& link) {
  link.closing.begin();
  if (!link.open()) return;  // its queue is sent if it opens
  link.close(all_.now());
  all_.sender.pump_soon(link.id());
}

bool UcxLinks::peer_closes(UcxLink& link, const Preamble& bye) {
  if (link.closing.peer_said_bye()) return false;
  link.closing.receive_bye({bye.first, bye.second});
  for (UcxLane& lane : link.lanes) lane.drop_queue();  // the peer takes nothing new
  begin_close(link);
  finish_close(link);
  return true;
}

bool UcxLinks::peer_has_all(UcxLink& link) {
  link.closing.peer_has_all();
  if (!link.closing.bye_sent()) return false;
  finish_close(link);
  return true;
}

void UcxLinks::finish_close(UcxLink& link) {
  if (link.closing.may_send_final_ack({link.lanes[0].taken(), link.lanes[1].taken()})) {
    link.closing.mark_final_ack_sent();
    Preamble taken;
    taken.kind = Preamble::Kind::kByeTaken;
    all_.sender.send(link.control(), taken);
  }
  if (link.closing.over()) end(link, Status());
}

void UcxLinks::connection_failed(const UcxConnectionPtr& connection, const Status& why) {
  UcxLink* link = find(connection->link());
  if (link == nullptr) {
    log_debug("ucx: a connection with " + connection->peer() + " ended: " + why.message());
    all_.endpoints.close(connection);
  } else if (link->dialled() && link->connecting()) {
    all_.dialler.failed(*link, why);
  } else if (link->closing.final_ack_sent()) {
    end(*link, Status());  // the peer had everything and ended first
  } else {
    end(*link, Status(why.code(), "the link to " + link->peer() + " broke: " + why.message() + " [ucx.broke]"));
  }
}

void UcxLinks::end(UcxLink& link, Status why) {
  for (const auto& connection : link.connections()) {
    if (connection != nullptr) all_.endpoints.close(connection);
  }
  if (!link.dialled() && !link.open()) {
    all_.acceptor.forget(link.token());  // the handler never heard of it
  } else {
    all_.calls.closed(link.id(), std::move(why));
  }
  const LinkId id = link.id();  // a copy, as erasing destroys the link
  links_.erase(id);
}

void UcxLinks::end_late(TimePoint now) {
  std::vector<LinkId> late;
  for (const auto& [id, link] : links_) {
    if (link.deadline() <= now) late.push_back(id);
  }
  for (const LinkId id : late) {
    UcxLink& link = *find(id);
    end(link, timed_out(link.open() ? "closing: " + link.peer() + " did not take all that was sent [ucx.not-delivered]"
                                    : "no connection to " + link.peer() + " within the time allowed [ucx.no-answer]"));
  }
}

}  // namespace collab
