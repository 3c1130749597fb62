// What of a site lies on disk, and when.
#include "core/runtime/storage/site_storage.h"

#include <gmock/gmock.h>

#include <vector>

#include "core/base/digest.h"
#include "core/base/fair_queue.h"
#include "tests/unit/runtime/in_own_folder.h"
#include "tests/unit/runtime/private_arena.h"

namespace collab {
namespace {

class SiteStorageTest : public testing::InOwnFolder {
 protected:
  static constexpr std::uint64_t kLength = 100;
  [[nodiscard]] std::string path() const { return state_path(folder_, "paris"); }
  [[nodiscard]] SiteStorage::Options saving(std::uint64_t every_rounds = 1) const {
    StateHeader header;
    header.swarm = "gpt2";
    header.site = "paris";
    return {.path = path(), .every_rounds = every_rounds, .header = header, .model = model_};
  }
  [[nodiscard]] std::unique_ptr<SiteStorage> make(SiteStorage::Options options) {
    return std::make_unique<SiteStorage>(std::move(options), *arena_,
                                         [this](std::uint64_t number, const Status&) { told_.push(0, number); });
  }
  void seal(std::uint64_t round) {
    std::ranges::fill(arena_->next_anchor(), 1.0F);
    arena_->seal({RunId(1), RoundId(round), digest_of_state(digest_of_vector(arena_->next_anchor()), {})});
  }
  [[nodiscard]] RecordStore record() const {
    Result<RecordStore> store = RecordStore::open(
        folder_, {.run = "gpt2", .site = "paris", .generation = 1, .rendezvous = "here", .model = {}});
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *std::move(store);
  }
  // What lies there once all is saved.
  [[nodiscard]] std::optional<StateHeader> state(SiteStorage& storage) const {
    storage.wait();
    const auto found = read_state_header(path());
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : std::nullopt;
  }

  const std::vector<TensorInfo> model_{{"weight", "float32", {kLength}, TensorKind::kAveraged, {}}};
  std::unique_ptr<ArenaWriter> arena_ = private_arena(kLength);
  Residual residual_{CodecId::kFp32, false, kLength, kLength};
  FairQueue<std::uint64_t> told_;
};

TEST_F(SiteStorageTest, AnAnchorIsDueByTheConfiguredNumberOfRounds) {
  const auto storage = make(saving(3));
  EXPECT_FALSE(storage->is_due(RoundId(3))) << "there is none";
  seal(3);
  EXPECT_TRUE(storage->is_due(RoundId(3)));
  EXPECT_FALSE(storage->is_due(RoundId(4)));
  EXPECT_FALSE(make({})->is_due(RoundId(3))) << "nothing is saved";
}

TEST_F(SiteStorageTest, AStateIsSavedWithItsSiteSpendingAndModel) {
  const auto storage = make(saving());
  seal(5);
  wire::Record known;
  known.acceptor = AcceptorId(4711);
  storage->save(known, residual_, {.spent = 10, .round = 2});
  const auto header = state(*storage);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->site, "paris");
  EXPECT_EQ(header->round, RoundId(5));
  EXPECT_EQ(header->elements, kLength);
  EXPECT_EQ(header->record.acceptor, AcceptorId(4711));
  EXPECT_EQ(header->egress.spent, 10U);
  ASSERT_EQ(header->model.size(), 1U);
  EXPECT_EQ(header->model[0].name, "weight");
  EXPECT_TRUE(header->residual.empty());
  EXPECT_FALSE(header->ended);
}

TEST_F(SiteStorageTest, ASiteThatHasLeftIsMarkedUntilItJoinsAgain) {
  seal(5);
  const auto first = make(saving());
  first->takes({RunId(1), RoundId(5), {}});
  first->save({}, residual_, {});
  first->left();
  ASSERT_TRUE(state(*first)->ended);
  SiteStorage::Options again = saving();
  again.found = wire::Offer{RunId(1), RoundId(5), {}};
  again.found_ended = true;
  const auto second = make(std::move(again));
  second->takes({RunId(1), RoundId(5), {}});
  second->joined();
  EXPECT_FALSE(state(*second)->ended);
}

TEST_F(SiteStorageTest, ARecordIsWrittenReportedAndRemovedWhenTheSiteLeaves) {
  EXPECT_FALSE(make({})->write({}, 1)) << "it is in memory";
  auto storage = make({.path = {}, .record = record()});
  EXPECT_TRUE(storage->write({}, 7));
  EXPECT_EQ(told_.pop_until(SteadyClock().now() + std::chrono::seconds(30)), 7U);
  EXPECT_FALSE(storage->record_is_stale());
  storage.reset();
  EXPECT_TRUE(record().read().has_value());
  storage = make({.path = {}, .record = record()});
  storage->left();
  storage.reset();
  EXPECT_FALSE(record().read().has_value());
}

}  // namespace
}  // namespace collab
