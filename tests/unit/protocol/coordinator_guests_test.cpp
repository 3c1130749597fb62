// Sites that come and do nothing, under one name or under many: how much of the others' time they take, and how long
// they stay.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = CoordinatorHarness;

constexpr Duration kTraining = std::chrono::milliseconds(1500);  // of a round
constexpr int kRounds = 60;
constexpr std::uint64_t kFirstGuest = 10;  // links of guests are counted from here

class CoordinatorGuests : public testing::Test {
 protected:
  CoordinatorGuests() { c.gather({"paris", "tokyo"}); }

  // paris and tokyo train so many rounds; `beside` is called each half second. How long a round took.
  template <typename F>
  Duration train(int rounds, F beside) {
    const TimePoint begun = c.now;
    for (int i = 0; i < rounds; ++i) {
      ++round;
      for (const TimePoint trigger = c.now + kTraining; c.now < trigger; pass()) beside();
      static_cast<void>(c.hear(1, H::ready(round)));
      starts.clear();
      static_cast<void>(hear(2, H::ready(round)));
      for (int half_seconds = 0; starts.empty() && half_seconds < 400; ++half_seconds) {
        beside();
        if (starts.empty()) pass();
      }
      if (starts.empty()) return ADD_FAILURE() << "round " << round << " never begins", Duration::max();
      for (const std::uint64_t link : {1, 2}) static_cast<void>(hear(link, H::done(starts.front().second)));
      for (const std::uint64_t link : {1, 2}) {
        static_cast<void>(hear(link, wire::AnchorInstalled{RunId{7}, RoundId{round}, kRight}));
      }
    }
    return (c.now - begun) / rounds;
  }
  void pass() { keep(c.pass(seconds(0.5), {1, 2})); }
  H::Actions hear(std::uint64_t link, wire::Message message) {
    H::Actions actions = c.hear(link, std::move(message));
    keep(actions);
    return actions;
  }
  void keep(const H::Actions& actions) {
    told += notes(actions);
    for (auto& start : sent<wire::StartAttempt>(actions)) starts.push_back(start);
    for (auto& install : sent<wire::InstallAnchor>(actions)) installs.push_back(install);
  }

  // Under another name each time. Until it is let go it is heard.
  void come_again(bool helper = false) {
    if (guest != 0) keep(c.close(guest));
    guest = kFirstGuest + guests++;
    wire::Join join = join_of("guest" + std::to_string(guests), 2);
    join.helper = helper;
    static_cast<void>(hear(guest, join));
  }
  void stay(bool helper = false) {
    if (guest == 0 || !c.coordinator.knows(LinkId{guest})) come_again(helper);
    static_cast<void>(hear(guest, wire::Heartbeat{}));
  }
  // That it has what it was told to take, whatever it has.
  void claim() {
    const auto told_it = [&](const auto& install) { return install.first == LinkId{guest}; };
    const auto install = std::ranges::find_if(installs, told_it);
    if (install == installs.end()) return;
    const wire::InstallAnchor it = install->second;
    installs.clear();
    static_cast<void>(hear(guest, wire::AnchorInstalled{it.run, it.round, it.digest}));
  }

  // Another one each round.
  void come_and_claim(bool helper) {
    if (std::exchange(claimed_in, round) != round) come_again(helper);
    stay(helper);
    claim();
  }

  H c;
  std::uint64_t round = 0;
  std::uint64_t claimed_in = 0;
  std::uint64_t guest = 0;  // its link; 0: nobody has come yet
  std::uint64_t guests = 0;
  std::string told;
  std::vector<std::pair<LinkId, wire::StartAttempt>> starts;
  std::vector<std::pair<LinkId, wire::InstallAnchor>> installs;
};

TEST_F(CoordinatorGuests, AGuestThatTakesNothingCostsAtMostHalfTheTime) {
  static_cast<void>(train(kRounds, [&] { stay(); }));  // until rounds no longer wait for it
  EXPECT_LE(train(kRounds, [&] { stay(); }), 2 * kTraining);
}

TEST_F(CoordinatorGuests, AGuestThatLeavesEarlyAndComesAgainCostsAtMostHalfTheTime) {
  int half_seconds = 0;
  const auto leave_early = [&] { ++half_seconds % 32 == 0 ? come_again() : stay(); };
  EXPECT_LE(train(2 * kRounds, leave_early), 2 * kTraining);
}

TEST_F(CoordinatorGuests, AGuestThatTakesNothingIsDroppedHoweverOftenTheAnchorMoves) {
  static_cast<void>(train(kRounds, [&] { stay(); }));
  EXPECT_GT(guests, 1U);
  EXPECT_THAT(told, HasSubstr("no part of the anchor has reached it for 60 s"));
}

// Rounds wait for a site that has come as for any straggler: that it holds the anchor is its own word.
TEST_F(CoordinatorGuests, AGuestThatSaysItHasTheAnchorAndIsNeverReadyCostsAtMostHalfTheTime) {
  EXPECT_LE(train(kRounds, [&] { come_and_claim(false); }), 2 * kTraining + H::defaults().straggler_grace / kRounds);
  EXPECT_GT(guests, 2U);
}

TEST_F(CoordinatorGuests, AGuestThatMakesProgressForLongAndIsNeverReadyCostsAtMostHalfTheTime) {
  constexpr int kGetsOn = 118;  // half seconds, of a grace of 120
  int half_seconds = 0;
  std::uint64_t progress = 0;
  const auto get_on = [&] {
    if (half_seconds++ % (kGetsOn + 4) == 0) come_again();
    if (half_seconds % (kGetsOn + 4) > kGetsOn) return claim();
    static_cast<void>(hear(guest, wire::Heartbeat{1, false, ++progress}));
  };
  EXPECT_LE(train(4 * kRounds, get_on), 2 * kTraining + 2 * H::defaults().straggler_grace / (4 * kRounds));
  EXPECT_GT(guests, 2U);
}

TEST_F(CoordinatorGuests, AHelperThatIsNeverReadyCostsAtMostHalfTheTime) {
  EXPECT_LE(train(kRounds, [&] { come_and_claim(true); }), 2 * kTraining);
  EXPECT_GT(guests, 2U);
}

TEST_F(CoordinatorGuests, AJoinerThatMakesProgressComesInBesideGuestsThatDoNot) {
  static_cast<void>(train(kRounds, [&] { stay(); }));
  static_cast<void>(hear(3, join_of("lima", 2)));
  std::uint64_t progress = 0;
  std::uint64_t taken_of = 0;
  TimePoint taken_at{};
  const auto take = [&] {  // of four seconds, and anew whenever the anchor moves
    stay();
    static_cast<void>(hear(3, wire::Heartbeat{1, false, ++progress}));
    const auto told_lima = [](const auto& install) { return install.first == LinkId{3}; };
    const auto newest = std::find_if(installs.rbegin(), installs.rend(), told_lima);
    if (newest == installs.rend()) return;
    if (std::exchange(taken_of, newest->second.round.value) != newest->second.round.value) taken_at = c.now;
    if (c.now - taken_at < seconds(4)) return;
    static_cast<void>(hear(3, wire::AnchorInstalled{RunId{7}, newest->second.round, kRight}));
  };
  static_cast<void>(train(10, take));
  EXPECT_THAT(told, HasSubstr("lima joined as site"));
}

// At the start of a swarm all are guests, and a slow line takes a while.
TEST(CoordinatorNewcomers, ALaterNewcomerIsWaitedForToo) {
  H c;
  for (std::uint64_t link = 1; link <= 3; ++link) {
    static_cast<void>(c.hear(link, join_of("site" + std::to_string(link), 3)));
  }
  const wire::AnchorInstalled installed{RunId{7}, RoundId{0}, kRight};
  static_cast<void>(c.hear(1, installed));
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(1, H::ready(1))).empty());
  const auto get_on = [&c](std::vector<std::uint64_t> links, std::uint64_t half_seconds) {
    for (std::uint64_t i = 1; i <= half_seconds; ++i) {
      for (const std::uint64_t link : links) {
        const wire::Heartbeat beat{1, false, 1000 * link + i};
        EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(link, beat)).empty());
      }
      EXPECT_TRUE(sent<wire::StartAttempt>(c.pass(seconds(0.5), {1, 2, 3})).empty());
    }
  };
  get_on({2, 3}, 24);
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(2, installed)).empty());
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).empty()) << "the third is on its way";
  get_on({3}, 30);
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(3, installed)).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(3, H::ready(1))).size(), 3U);
}

TEST_F(CoordinatorGuests, ProgressThatGoesBackAndForthDoesNotCount) {
  std::uint64_t beats = 0;
  static_cast<void>(train(kRounds, [&] {
    stay();
    static_cast<void>(hear(guest, wire::Heartbeat{1, false, beats++ % 2}));
  }));
  EXPECT_GT(guests, 1U);
}

}  // namespace
}  // namespace collab::protocol
