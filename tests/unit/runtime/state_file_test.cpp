// A state file comes back as it was written, or a clear error refuses it. It never comes back in part.
#include "core/runtime/storage/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>

#include "core/base/digest.h"
#include "tests/unit/runtime/disks.h"
#include "tests/unit/runtime/in_own_folder.h"
#include "tests/unit/runtime/whole_state.h"

namespace collab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StateFileTest : public testing::InOwnFolder {
 protected:
  StateFileTest() {
    path_ = state_path(folder_, "paris");
    anchor_.resize(1000);
    outer_.resize(1000);
    std::iota(anchor_.begin(), anchor_.end(), 0.5F);
    std::iota(outer_.begin(), outer_.end(), -7.25F);
    header_.swarm = "gpt2";
    header_.site = "paris";
    header_.run = RunId{0x1234'5678'9abc'def0};
    header_.round = RoundId{17};
    header_.digest = digest_of_state(digest_of_vector(anchor_), digest_of_vector(outer_));
    header_.fingerprint = {3, 4};
    header_.elements = 1000;
    header_.outer_state = true;
    header_.record.acceptor = AcceptorId{11};
    header_.record.promised = TermId{5};
    header_.record.anchor = {header_.run, header_.round, header_.digest};
    header_.record.voters = {{SiteId{0}, "paris", AcceptorId{11}}, {SiteId{2}, "oslo", AcceptorId{12}}};
    header_.model = {{"wte.weight", "float32", {10, 90}, TensorKind::kAveraged, {}},
                     {"mask", "bool", {}, TensorKind::kFrozen, {5, 6}}};
  }

  Status write() { return write_state(path_, header_, anchor_, outer_, residual_); }
  void keep_residual() {
    residual_.resize(1000);
    std::iota(residual_.begin(), residual_.end(), -0.125F);
    header_.residual = {{digest_of_vector(residual_), {0.25F, 0.5F, {{0, 64}, {512, 1000}}}}};
  }
  Status read() {
    const auto header = read_state_header(path_);
    if (!header.ok()) return header.status();
    if (!header->has_value()) return unavailable("no file");
    got_ = **header;
    // Damage may only ever shrink what we are asked to hold here: sizes come from a header whose hash is right.
    got_anchor_.assign(got_.elements, 0.0F);
    got_outer_.assign(got_.outer_state ? got_.elements : 0, 0.0F);
    COLLAB_RETURN_IF_ERROR(read_state_into(path_, got_, got_anchor_, got_outer_));
    got_residual_ = {};
    if (got_.residual.empty()) return {};
    Result<StoredResidual> stored = read_residual(path_, got_);
    if (stored.ok()) got_residual_ = std::move(*stored);
    return stored.status();
  }
  std::vector<char> bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void put(const std::vector<char>& content) const {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
  }

  std::string path_;
  StateHeader header_;
  std::vector<float> anchor_;
  std::vector<float> outer_;
  std::vector<float> residual_;
  StateHeader got_;
  std::vector<float> got_anchor_;
  std::vector<float> got_outer_;
  StoredResidual got_residual_;
};

TEST_F(StateFileTest, ComesBackAsWritten) {
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(got_.swarm, "gpt2");
  EXPECT_EQ(got_.site, "paris");
  EXPECT_EQ(got_.run, header_.run);
  EXPECT_EQ(got_.round, header_.round);
  EXPECT_EQ(got_.digest, header_.digest);
  EXPECT_EQ(got_.record, header_.record);
  EXPECT_EQ(got_.fingerprint, header_.fingerprint);
  ASSERT_EQ(got_.model.size(), 2U);
  EXPECT_EQ(got_.model[0].name, "wte.weight");
  EXPECT_EQ(got_.model[0].shape, (std::vector<std::uint64_t>{10, 90}));
  EXPECT_EQ(got_.model[1].kind, TensorKind::kFrozen);
  EXPECT_EQ(got_.model[1].digest, (Digest{5, 6}));
  EXPECT_EQ(got_anchor_, anchor_);
  EXPECT_EQ(got_outer_, outer_);
}

TEST_F(StateFileTest, BuffersLeftOutAreToldApartFromFrozenOnes) {
  header_.model.push_back({"attn.mask", "float32", {4, 4}, TensorKind::kLeftOut, {7, 8}});
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(read().ok());
  ASSERT_EQ(got_.model.size(), 3U);
  EXPECT_EQ(got_.model[2].kind, TensorKind::kLeftOut);
  EXPECT_EQ(got_.model[2].digest, (Digest{7, 8}));
}

TEST_F(StateFileTest, AStateWithoutOuterStateComesBack) {
  header_.outer_state = false;
  header_.digest = digest_of_state(digest_of_vector(anchor_), Digest{});
  ASSERT_TRUE(write_state(path_, header_, anchor_, {}).ok());
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(got_anchor_, anchor_);
  EXPECT_TRUE(got_outer_.empty());
}

TEST_F(StateFileTest, TheResidualComesBackWithItsUnits) {
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(read().ok());
  EXPECT_TRUE(got_.residual.empty());
  EXPECT_EQ(read_residual(path_, got_).status().code(), StatusCode::kInvalidArgument);
  for (const bool outer_state : {true, false}) {
    header_.outer_state = outer_state;
    if (!outer_state) outer_.clear();
    header_.digest = digest_of_state(digest_of_vector(anchor_), outer_state ? digest_of_vector(outer_) : Digest{});
    keep_residual();
    ASSERT_TRUE(write().ok());
    const Status status = read();
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(got_anchor_, anchor_);
    EXPECT_EQ(got_residual_.run, header_.run);
    EXPECT_EQ(got_residual_.values, residual_);
    EXPECT_EQ(got_residual_.units.share, 0.25F);
    EXPECT_EQ(got_residual_.units.equal, 0.5F);
    EXPECT_EQ(got_residual_.units.of_mean, (std::vector<ElementRange>{{0, 64}, {512, 1000}}));
  }
}

TEST_F(StateFileTest, AResidualThatCannotBeIsRefused) {
  const auto refused = [this](const auto& change) {
    keep_residual();
    change(header_.residual[0]);
    EXPECT_TRUE(write().ok());
    const Status status = read();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    return status.message();
  };
  using Ranges = std::vector<ElementRange>;
  EXPECT_THAT(refused([](ResidualRecord& r) { r.units.share = 1.5F; }), HasSubstr("residual.share"));
  EXPECT_THAT(refused([](ResidualRecord& r) { r.units.equal = 0; }), HasSubstr("residual.equal"));
  for (const Ranges& ranges : {Ranges{{5, 5}}, Ranges{{0, 1001}}, Ranges{{0, 9}, {8, 10}}, Ranges{{9, 10}, {0, 2}}}) {
    EXPECT_THAT(refused([&](ResidualRecord& r) { r.units.of_mean = ranges; }), HasSubstr("residual.of_mean"));
  }
  EXPECT_THAT(refused([this](ResidualRecord&) { residual_[7] = std::numeric_limits<float>::quiet_NaN(); }),
              HasSubstr("NaN"));
  residual_[7] = 0;
  ASSERT_TRUE(write().ok());
  std::vector<char> flipped = bytes();
  flipped.back() = static_cast<char>(flipped.back() ^ 1);  // it is the last of the vectors
  put(flipped);
  EXPECT_THAT(read().message(), HasSubstr("its residual has digest"));
}

TEST_F(StateFileTest, AnEndInGoodOrderIsMarkedInPlaceAndTakenBack) {
  EXPECT_TRUE(mark_ended(system_disk(), path_, true).ok()) << "there is no file yet";
  keep_residual();
  ASSERT_TRUE(write().ok());
  const std::vector<char> before = bytes();
  for (const bool ended : {true, true, false, true}) {
    ASSERT_TRUE(mark_ended(system_disk(), path_, ended).ok());
    ASSERT_TRUE(read().ok());
    EXPECT_EQ(got_.ended, ended);
    EXPECT_EQ(got_anchor_, anchor_);
    EXPECT_EQ(got_.record, header_.record);
  }
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(bytes(), before) << "who writes it goes on";
}

TEST_F(StateFileTest, AFailedMarkIsReportedAndLeavesTheFileUnchanged) {
  ASSERT_TRUE(write().ok());
  testing::FailingDisk disk;
  disk.writing = ENOSPC;
  EXPECT_THAT(mark_ended(disk, path_, true).message(), HasSubstr(path_));
  ASSERT_TRUE(read().ok());
  EXPECT_FALSE(got_.ended);
}

TEST_F(StateFileTest, ARecordThatBreaksItsRulesIsRefused) {
  std::swap(header_.record.voters[0], header_.record.voters[1]);
  ASSERT_TRUE(write().ok());
  EXPECT_THAT(read().message(), AllOf(HasSubstr("state.damaged"), HasSubstr("voters")));
}

TEST_F(StateFileTest, KeepsTheSentResidual) {
  header_.egress = {123'456'789'012, 5'000};
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(got_.egress, header_.egress);
}

TEST_F(StateFileTest, AFolderThatCannotBeWrittenIsReportedBeforehand) {
  ASSERT_TRUE(check_state_writable(path_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the probe leaves nothing behind";
  std::ofstream(folder_ + "/file").put('x');
  const Status status = check_state_writable(state_path(folder_ + "/file", "paris"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("COLLAB_STATE_DIR: cannot make " + folder_ + "/file/paris.collab"));
}

// A second process that was started by mistake: it is refused a little later.
TEST_F(StateFileTest, TheProbeLeavesASaveUnderWayAlone) {
  std::filesystem::create_directories(folder_);
  auto save = NewFile::make(system_disk(), path_);
  ASSERT_TRUE(save.ok());
  EXPECT_TRUE(check_state_writable(path_).ok());
  EXPECT_TRUE(save->sync().ok());
  EXPECT_TRUE(save->place().ok());
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(StateFileTest, IsItsOwnersAlone) {
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// A user with write access to the folder can neither redirect nor block a read.
TEST_F(StateFileTest, LinksAreNotFollowedAndPipesNotWaitedFor) {
  std::filesystem::create_directories(folder_);
  const std::string elsewhere = folder_ + "/elsewhere";
  std::ofstream(elsewhere) << "precious";
  std::filesystem::create_symlink(elsewhere, path_ + ".new");
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(std::filesystem::file_size(elsewhere), 8U);
  ASSERT_TRUE(read().ok());

  const std::string link = folder_ + "/link.collab", pipe = folder_ + "/pipe.collab";
  std::filesystem::create_symlink(path_, link);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {link, pipe, folder_}) {
    EXPECT_THAT(read_state_header(path).status().message(), HasSubstr("cannot open the state file " + path));
  }
}

TEST_F(StateFileTest, NoFileIsNoState) {
  const auto header = read_state_header(path_);
  ASSERT_TRUE(header.ok());
  EXPECT_FALSE(header->has_value());
}

TEST_F(StateFileTest, ANewStateReplacesTheOldOneAndLeavesNothingBehind) {
  ASSERT_TRUE(write().ok());
  header_.round = RoundId{18};
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(got_.round, RoundId{18});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(StateFileTest, AFailedWriteLeavesTheOldStateWhole) {
  ASSERT_TRUE(write().ok());
  // A folder in the way of the new file: it cannot be made, even by root.
  std::filesystem::create_directories(path_ + ".new/in the way");
  header_.round = RoundId{18};
  const Status status = write();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("COLLAB_STATE_DIR"));
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(got_.round, RoundId{17});
}

TEST_F(StateFileTest, EveryTruncationIsRefused) {
  ASSERT_TRUE(write().ok());
  std::size_t length = bytes().size();
  while (length > 0) {
    length -= length <= 400 ? 1 : std::min<std::size_t>(97, length - 400);
    std::filesystem::resize_file(path_, length);
    const Status status = read();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << length << ": " << status.to_string();
  }
}

TEST_F(StateFileTest, AFileThatIsTooLongIsRefused) {
  ASSERT_TRUE(write().ok());
  std::vector<char> longer = bytes();
  longer.push_back('x');
  put(longer);
  const Status status = read();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("its header asks for"));
}

TEST_F(StateFileTest, EveryFlippedBitIsNoticed) {
  keep_residual();
  ASSERT_TRUE(write().ok());
  const std::vector<char> whole = bytes();
  const std::size_t vectors = whole.size() - 3 * 1000 * sizeof(float);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  const auto put_at = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte).flush();
  };
  for (std::size_t at = 0; at < whole.size(); at += at < vectors ? 1 : 131) {
    for (int bit = 0; bit < 8; ++bit) {
      put_at(at, static_cast<char>(whole[at] ^ (1 << bit)));
      EXPECT_FALSE(read().ok()) << "bit " << bit << " of byte " << at;
    }
    put_at(at, whole[at]);
  }
  EXPECT_TRUE(read().ok());
}

TEST_F(StateFileTest, FlippedBitsOfTheVectorsNameBothDigests) {
  ASSERT_TRUE(write().ok());
  std::vector<char> flipped = bytes();
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  put(flipped);
  const Status status = read();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(to_hex(header_.digest)));
}

TEST_F(StateFileTest, AnotherFormatIsRefusedWithBothVersions) {
  ASSERT_TRUE(write().ok());
  std::vector<char> other = bytes();
  for (const char format : {'\6', '\x8'}) {
    other[8] = format;
    put(other);
    const Status status = read();
    EXPECT_EQ(status.code(), StatusCode::kRefused);
    EXPECT_THAT(status.message(),
                HasSubstr("has format " + std::to_string(int{format}) + ", but this collab reads format 7"));
  }
}

TEST_F(StateFileTest, VectorsOfAnotherLengthAreRefused) {
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(read_state_into(path_, got_, std::span(got_anchor_).first(1), got_outer_).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(StateFileTest, AFileReplacedBetweenHeaderAndVectorsIsNoticed) {
  ASSERT_TRUE(write().ok());
  const auto before = read_state_header(path_);
  ASSERT_TRUE(before.ok() && before->has_value());
  header_.round = RoundId{18};
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(read_state_into(path_, **before, anchor_, outer_).code(), StatusCode::kUnavailable);
}

TEST_F(StateFileTest, AProcessThatEndsAtAnyCallLeavesTheOldStateOrTheNew) {
  ASSERT_TRUE(write().ok());
  for (int at = 1;; ++at) {
    header_.round = RoundId{18};
    const pid_t child = ::fork();
    if (child == 0) {
      testing::DyingDisk disk(at);
      const auto zeros = [](StatePart, std::uint64_t, std::span<float> out) {
        std::ranges::fill(out, 0.0F);
        return true;
      };
      header_.digest =
          digest_of_state(digest_of_vector(std::vector<float>(1000)), digest_of_vector(std::vector<float>(1000)));
      ::_exit(write_state(disk, path_, header_, zeros).ok() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(read().ok()) << at;
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), testing::DyingDisk::kStatus);
  }
  EXPECT_EQ(got_.round, RoundId{18});
  EXPECT_EQ(got_anchor_, std::vector<float>(1000));
}

TEST_F(StateFileTest, NamesThatAreTooLongAreRefusedBeforeAnythingIsWritten) {
  header_.model[0].name.assign(300, 'x');
  EXPECT_FALSE(write().ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST(StatePath, IsOneFileInTheFolderWhateverTheSiteIsCalled) {
  EXPECT_EQ(state_path("/d", "paris-2"), "/d/paris-2.collab");
  EXPECT_EQ(state_path("/d", "../x y"), "/d/%2e.%2fx%20y.collab");
  EXPECT_NE(state_path("/d", "a/b"), state_path("/d", "a_b"));
}

}  // namespace
}  // namespace collab
