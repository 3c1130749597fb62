// Attacks below messages: frames that cost time, links that come back or do not go, and answers to any dialler.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/encoding.h"
#include "tests/hostile/attack.h"

namespace collab::hostile {
namespace {

constexpr std::size_t kFloods = 4;
constexpr std::uint16_t kOfLink = tcp::kMaxDataConnections;
constexpr std::size_t kFlood = std::size_t{64} << 10;  // bytes of frames at once
constexpr std::size_t kLingerers = 300;
constexpr int kGreetMs = 2000;
constexpr Duration kReturning = std::chrono::seconds(2);  // with one link
constexpr Duration kSlowly = std::chrono::seconds(4);     // a closed link ends after five without an acknowledgement
constexpr std::size_t kHeldJoins = 48;
constexpr std::size_t kHeldDials = 600;
constexpr std::size_t kPhantomEntries = 10'000;

// One link with all the connections it may have, each of which sends small frames without end, or half of one.
class Flood {
 public:
  Flood(Context& context, const std::string& address) : hello_(context.draw_hello()) {
    for (std::uint16_t index = 0; index <= kOfLink && !context.over(); ++index) {
      hello_.connection = index;
      hello_.opens = index == 0;
      lines_.push_back(context.raw(address, hello_));
      if (index == 0 && !lines_.back()->wait_for_welcome(kGreetMs)) break;
    }
  }
  [[nodiscard]] bool open() const { return !lines_.empty() && lines_.front()->open(); }
  void go_on(Context& context, const std::vector<tcp::Bytes>& floods) {
    const std::uint64_t before = lines_.front()->pongs_came();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      RawConnection& line = *lines_[i];
      const bool half = i % 8 == 7;  // it answers nothing: a pong in the midst of a frame would end it
      if (!half) line.look();
      if (!line.flush() && !half) continue;
      if (half) {
        line.queue(std::span(floods.front()).subspan(number_ % floods.front().size(), 1));
      } else {
        const tcp::Bytes& flood = floods[context.prng.below(floods.size())];
        line.queue(flood);
        context.counts.bytes += flood.size();
      }
      line.flush();
    }
    ++number_;
    context.counts.arrives(lines_.front()->pongs_came() - before);
  }
  void note_end(Context& context) const {
    if (!lines_.empty()) context.note_end(*lines_.front());
  }

 private:
  tcp::Hello hello_;
  std::vector<std::unique_ptr<RawConnection>> lines_;
  std::size_t number_ = 0;
};

tcp::Bytes repeated(const tcp::Bytes& frame) {
  tcp::Bytes all;
  while (all.size() < kFlood) all.insert(all.end(), frame.begin(), frame.end());
  return all;
}

// Asks, breaks the link in words, and acknowledges what was answered as slowly as it may.
struct Lingerer {
  std::unique_ptr<RawConnection> line;
  std::uint64_t acknowledged = 0;
  TimePoint next;
};

void linger(Context& context, std::deque<Lingerer>& held) {
  constexpr int kQuestions = 20;
  if (held.size() < kLingerers) {
    if (auto line = context.raw_link(context.target)) {
      for (int i = 0; i < kQuestions; ++i) context.queue(*line, wire::encode(wire::Inquire{context.swarm.name}));
      context.queue(*line, std::vector<std::byte>(40));
      line->flush();
      held.push_back({std::move(line), 0, context.now() + kSlowly});
    }
  }
  std::erase_if(held, [&](const Lingerer& each) { return !each.line->open(); });
  for (Lingerer& each : held) {
    if (context.now() < each.next) continue;
    each.next = context.now() + kSlowly;
    each.line->look();
    each.acknowledged = std::min(each.acknowledged + 1, each.line->segments_came());
    each.line->queue(tcp::encode(tcp::Arrivals{tcp::LaneArrivals{each.acknowledged, {}}, tcp::LaneArrivals{}}));
    each.line->flush();
  }
}

// A join with a model that no site has, and a generation to be waited for.
std::vector<std::byte> phantom_join(Context& context) {
  wire::Join join = proper_join(context.swarm, context.draw_name(), "", false, context.prng);
  join.generation += 1;
  join.model.assign(kPhantomEntries,
                    {.name = "w", .dtype = "float32", .shape = {}, .kind = TensorKind::kAveraged, .digest = {}});
  return wire::encode(join);
}

// The other end of what was dialled: welcomes it, wants as many connections as there may be, and says its message.
struct Dialled {
  std::unique_ptr<RawConnection> line;
  bool answered = false;
};

void answer(Context& context, Dialled& dialled, const tcp::Id& process) {
  dialled.line->look();
  if (dialled.answered || !dialled.line->hello()) return;
  dialled.answered = true;
  context.counts.arrives();
  dialled.line->queue(tcp::encode_preface());
  dialled.line->queue(tcp::encode_welcome(process));
  if (dialled.line->hello()->connection == 0) {
    dialled.line->queue(tcp::encode_want(tcp::kMaxDataConnections));
    context.queue(*dialled.line, wire::encode(wire::StatusQuery{}));
    context.queue(*dialled.line, phantom_join(context));
  }
  dialled.line->flush();
}

}  // namespace

void attack_frames(Context& context) {
  const std::vector<std::string> targets = context.swarm.addresses();
  const std::vector<tcp::Bytes> floods{repeated(tcp::encode_ping(7)), repeated(tcp::encode_ping(7)),
                                       repeated(tcp::encode_allow(1)), repeated(tcp::encode(tcp::Arrivals{})),
                                       repeated(tcp::encode_want(1))};
  std::deque<Flood> links;
  std::deque<Lingerer> lingerers;
  for (std::size_t number = 0; !context.done(); ++number) {
    if (links.size() < kFloods) links.emplace_back(context, targets[number % targets.size()]);
    for (Flood& link : links) {
      if (link.open()) link.go_on(context, floods);
    }
    std::erase_if(links, [&](const Flood& each) {
      if (!each.open()) each.note_end(context);
      return !each.open();
    });
    if (links.empty()) wait_ms(1);
    linger(context, lingerers);
  }
  context.counts.answered("links that lingered at the end: " + std::to_string(lingerers.size()));
}

void attack_returns(Context& context) {
  const std::vector<std::string> targets = context.swarm.addresses();
  while (!context.done()) {
    const std::string& address = targets[context.prng.below(targets.size())];
    tcp::Hello hello = context.draw_hello();
    const TimePoint until = context.now() + kReturning;
    while (!context.done() && context.now() < until) {
      const auto line = context.raw(address, hello);
      if (!line->wait_for_welcome(kGreetMs)) {
        context.note_end(*line);
        wait_ms(1);
        break;
      }
      if (!hello.opens) context.counts.arrives();
      hello.opens = false;
    }
  }
}

void attack_answered(Context& context) {
  learn_model(*context.peer, context.swarm, context.prng);
  if (context.swarm.elements == 0) {  // no site trains yet: a model of its own
    context.swarm.elements = 1;
    context.swarm.model = {
        {.name = "w", .dtype = "float32", .shape = {1}, .kind = TensorKind::kAveraged, .digest = {}}};
  }
  const Port port;
  const tcp::Id process = context.draw_id();
  std::deque<Dialled> dialled;
  std::deque<LinkId> joined;
  while (!context.done()) {
    if (const std::optional<LinkId> link = context.peer->dial(context.target)) {
      const bool helper = context.swarm.model.empty() || context.prng.chance(0.5);
      context.peer->send(*link, proper_join(context.swarm, context.draw_name(), port.address(), helper, context.prng));
      joined.push_back(*link);
    }
    if (joined.size() > kHeldJoins) {
      context.peer->close(joined.front());
      joined.pop_front();
    }
    for (int made = port.take(); made >= 0; made = port.take()) {
      dialled.push_back(
          {std::make_unique<RawConnection>(made, context.keys != nullptr ? context.keys->current() : nullptr)});
      if (dialled.size() > kHeldDials) dialled.pop_front();
    }
    for (Dialled& each : dialled) answer(context, each, process);
    std::erase_if(dialled, [](const Dialled& each) { return !each.line->open(); });
    if (joined.empty()) wait_ms(1);
  }
  for (const LinkId link : joined) context.peer->close(link);
}

}  // namespace collab::hostile
