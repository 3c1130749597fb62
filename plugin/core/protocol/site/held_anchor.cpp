#include "core/protocol/site/held_anchor.h"

#include "core/protocol/site/site_parts.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxFetches = 256;  // requests of one site that wait for our anchor

}  // namespace

void HeldAnchor::hold(const wire::Offer& anchor) {
  anchor_ = anchor;
  all_->membership.offer(anchor);
}

void HeldAnchor::has_digest(const Digest& digest) {
  wire::Offer offer = all_->membership.join().offer;
  offer.digest = digest;
  all_->membership.offer(offer);
  if (anchor_) anchor_->digest = digest;
}

void HeldAnchor::announce() {
  all_->coordinator.send(wire::AnchorInstalled{anchor_->run, anchor_->round, anchor_->digest, all_->acceptor.id()});
}

void HeldAnchor::on_fetch(LinkId link, const wire::FetchAnchor& fetch) {
  auto& waiting = fetches_[link];
  if (waiting.size() >= kMaxFetches) return all_->peers.close_link(link, "it asks for more than is answered");
  waiting.push_back(fetch);
  answer_fetches();
}

// A site may be told to fetch from us before our own anchor is in place. We answer once it is. We send what we hold
// even without a coordinator. We send AnchorMoved only while active, when what we hold is known to be the newest.
void HeldAnchor::answer_fetches() {
  if (!anchor_ || all_->membership.phase() == SitePhase::kInstalling || all_->round.is_applying()) return;
  const auto held = [this](const wire::FetchAnchor& fetch) { return is_of(fetch.run, fetch.round); };
  for (auto entry = fetches_.begin(); entry != fetches_.end();) {
    auto& [link, waiting] = *entry;
    for (const wire::FetchAnchor& fetch : waiting) {
      if (held(fetch)) all_->out.emplace_back(SendAnchor{fetch, link});
    }
    std::erase_if(waiting, held);
    if (!waiting.empty() && all_->membership.phase() == SitePhase::kActive) {
      all_->out.emplace_back(Send{link, wire::AnchorMoved{anchor_->run, anchor_->round}});
      waiting.clear();
    }
    entry = waiting.empty() ? fetches_.erase(entry) : std::next(entry);
  }
}

}  // namespace collab::protocol
