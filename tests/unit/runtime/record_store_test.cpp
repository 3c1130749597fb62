// A record comes back as it was last written, whole, and only to its own site. A record that cannot be trusted is named
// and put aside.
#include "core/runtime/storage/record_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "core/base/digest.h"
#include "core/runtime/leader.h"
#include "tests/unit/runtime/disks.h"
#include "tests/unit/runtime/in_own_folder.h"

namespace collab::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class RecordStoreTest : public testing::InOwnFolder {
 protected:
  RecordStoreTest() {
    scope_ = {.run = "gpt2", .site = "paris", .generation = 1, .rendezvous = "10.0.0.1:29400", .model = {3, 4}};
  }

  RecordStore open(Disk& disk = system_disk()) {
    Result<RecordStore> store = RecordStore::open(folder_, scope_, disk);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *std::move(store);
  }
  void keep(std::string_view body) { ASSERT_TRUE(open().write(bytes_of(body)).ok()); }
  // What the next process reads; empty: nothing.
  std::string kept() {
    const RecordStore store = open();
    if (!store.read()) return "";
    const std::span<const char> text(reinterpret_cast<const char*>(store.read()->data()), store.read()->size());
    return {text.begin(), text.end()};
  }
  [[nodiscard]] std::string path() const { return folder_ + "/" + record_name(scope_); }
  [[nodiscard]] std::vector<char> file() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void put(const std::vector<char>& content) const {
    std::ofstream out(path(), std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  // Its hash set right again.
  void put_hashed(std::vector<char> content) const {
    std::fill_n(content.begin() + 24, 8, '\0');
    const std::uint64_t hash = hash64(std::as_bytes(std::span(content)));
    for (std::size_t i = 0; i < 8; ++i) content[24 + i] = static_cast<char>(hash >> (8 * i));
    put(content);
  }
  // What a process does of its own, and how it ended.
  static int in_child(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      body();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  RecordScope scope_;
};

TEST_F(RecordStoreTest, TheLastRecordComesBack) {
  {
    RecordStore store = open();
    EXPECT_EQ(store.read(), std::nullopt);
    EXPECT_TRUE(store.durable());
    EXPECT_EQ(store.path(), path());
    ASSERT_TRUE(store.write(bytes_of("promised 4")).ok());
    ASSERT_TRUE(store.write(bytes_of("promised 5")).ok());
  }
  EXPECT_EQ(kept(), "promised 5");
  EXPECT_EQ(kept(), "promised 5");
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(RecordStoreTest, AnEmptyBodyIsARecord) {
  keep("");
  const RecordStore store = open();
  EXPECT_EQ(store.read(), Bytes());
}

TEST_F(RecordStoreTest, TheLargestBodyComesBackAndALargerOneIsRefused) {
  Bytes body(kMaxRecordBytes, std::byte{5});
  ASSERT_TRUE(open().write(body).ok());
  EXPECT_EQ(open().read(), body);
  body.emplace_back();
  RecordStore store = open();
  EXPECT_EQ(store.write(body).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(store.durable());
}

TEST_F(RecordStoreTest, TheFormatIsAsDocumented) {
  keep("abc");
  const std::vector<char> content = file();
  // 4 + 2, 5 + 2, 4, 14 + 2, 16 bytes of scope
  ASSERT_EQ(content.size(), 32U + 49U + 3U);
  EXPECT_EQ(std::string(content.data(), 8), "collabRC");
  EXPECT_EQ(content[8], 1);
  EXPECT_EQ(content[12], 49);
  EXPECT_EQ(content[16], 3);
  EXPECT_EQ(std::string(content.data() + 34, 4), "gpt2");
  EXPECT_EQ(std::string(content.data() + 81, 3), "abc");
  put_hashed(content);
  EXPECT_EQ(file(), content);
}

TEST_F(RecordStoreTest, RecordsOfDifferentScopesShareNothing) {
  keep("mine");
  const RecordScope mine = scope_;
  const std::vector<std::function<void()>> changes{[&] { scope_.run = "gpt3"; }, [&] { scope_.site = "oslo"; },
                                                   [&] { scope_.generation = 2; },
                                                   [&] { scope_.rendezvous = "10.0.0.2:29400"; },
                                                   [&] {
                                                     scope_.model = {3, 5};
                                                   }};
  for (const auto& change : changes) {
    scope_ = mine;
    change();
    EXPECT_EQ(kept(), "") << record_name(scope_);
    keep("theirs");
  }
  scope_ = mine;
  EXPECT_EQ(kept(), "mine");
}

TEST_F(RecordStoreTest, TheScopeOfASessionIsItsOwn) {
  SessionOptions options;
  options.config.run = "gpt2";
  options.site = "paris";
  options.record.scope = "10.0.0.1:29400";
  options.model = {{"wte.weight", "float32", {4, 5}, TensorKind::kAveraged, {}}};
  const RecordScope scope = record_scope(options);
  EXPECT_EQ(scope, (RecordScope{"gpt2", "paris", 1, "10.0.0.1:29400", scope.model}));
  options.model[0].shape = {4, 6};
  EXPECT_NE(record_scope(options).model, scope.model);
}

TEST_F(RecordStoreTest, NamesOfAnyKindGiveShortFileNamesThatDiffer) {
  scope_.run = "../" + std::string(300, 'r');
  scope_.site = std::string(200, '\xff') + "1";
  scope_.rendezvous = std::string(5000, 'c');
  const std::string one = record_name(scope_);
  EXPECT_LE(one.size(), 200U);
  EXPECT_EQ(one.find('/'), std::string::npos);
  EXPECT_THAT(one, StartsWith("%2e.%2frrr"));
  keep("here");
  EXPECT_EQ(kept(), "here");
  scope_.site.back() = '2';
  EXPECT_NE(record_name(scope_), one);
  EXPECT_EQ(kept(), "");
}

// ---- what cannot be trusted

TEST_F(RecordStoreTest, AnyDamageIsNoticedAndPutAside) {
  keep("promised 5");
  const std::vector<char> whole = file();
  ::testing::internal::CaptureStderr();
  for (std::size_t at = 0; at < whole.size(); at += at < 40 ? 1 : 5) {
    std::vector<char> damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    put(damaged);
    EXPECT_EQ(kept(), "") << "byte " << at;
    EXPECT_FALSE(fs::exists(path()));
  }
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    put({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)});
    EXPECT_EQ(kept(), "") << bytes << " bytes";
  }
  std::vector<char> longer = whole;
  longer.push_back('x');
  put(longer);
  EXPECT_EQ(kept(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("(.damaged-1)"));
  put(whole);
  EXPECT_EQ(kept(), "promised 5");
}

TEST_F(RecordStoreTest, ARecordThatTheSystemCannotReadNowIsKeptForTheNextStart) {
  keep("promised 5");
  FailingDisk disk;
  for (const int why : {EMFILE, EIO, EACCES}) {
    disk.opening = why;
    const Status refused = RecordStore::open(folder_, scope_, disk).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_THAT(refused.message(), HasSubstr(path()));
    EXPECT_THAT(refused.message(), HasSubstr(std::strerror(why)));
    EXPECT_THAT(refused.message(), HasSubstr("[record.unreadable]"));
  }
  disk.opening = 0;
  EXPECT_EQ(kept(), "promised 5");
}

TEST_F(RecordStoreTest, PuttingAsideOverwritesNothing) {
  for (const char* body : {"first", "second"}) {
    keep(body);
    std::vector<char> content = file();
    content.back() = '!';
    put(content);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(kept(), "");
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(path()));
    EXPECT_THAT(said, HasSubstr("its checksum does not match"));
  }
  std::ifstream first(path() + ".damaged-1", std::ios::binary);
  std::ifstream second(path() + ".damaged-2", std::ios::binary);
  const std::string one{std::istreambuf_iterator<char>(first), {}};
  const std::string two{std::istreambuf_iterator<char>(second), {}};
  EXPECT_THAT(one, HasSubstr("firs!"));
  EXPECT_THAT(two, HasSubstr("secon!"));
}

TEST_F(RecordStoreTest, AnotherFormatIsPutAsideAsNotOurs) {
  keep("promised 5");
  std::vector<char> content = file();
  content[8] = 2;
  put_hashed(content);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(kept(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("format 2, but this collab reads format 1"));
  EXPECT_TRUE(fs::exists(path() + ".other-1"));
}

TEST_F(RecordStoreTest, ARecordOfAnotherSiteUnderOurPathIsPutAside) {
  keep("ours");
  const RecordScope ours = scope_;
  const std::string here = path();
  const std::vector<std::pair<std::function<void()>, std::string>> others{
      {[&] { scope_.run = "gpt3"; }, "run gpt3"},
      {[&] { scope_.site = "oslo"; }, "site oslo"},
      {[&] { scope_.generation = 7; }, "generation 7"},
      {[&] { scope_.rendezvous = "elsewhere"; }, "rendezvous elsewhere"},
      {[&] {
         scope_.model = {9, 9};
       },
       "model " + to_hex(Digest{9, 9})}};
  for (const auto& [change, words] : others) {
    change();
    keep("theirs");
    fs::rename(path(), here);
    scope_ = ours;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(kept(), "");
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(words));
  }
  EXPECT_TRUE(fs::exists(here + ".other-5"));
}

TEST_F(RecordStoreTest, AFileThatIsTooLargeIsNotRead) {
  keep("x");
  fs::resize_file(path(), std::uintmax_t{1} << 40);  // it has holes
  EXPECT_EQ(kept(), "");
  EXPECT_TRUE(fs::exists(path() + ".damaged-1"));
}

TEST_F(RecordStoreTest, AnUnreadableRecordIsPutAside) {
  keep("nonsense");
  RecordStore store = open();
  ASSERT_TRUE(store.read());
  ASSERT_TRUE(store.set_aside("its term is 0").ok());
  EXPECT_EQ(store.read(), std::nullopt);
  EXPECT_TRUE(fs::exists(path() + ".damaged-1"));
  ASSERT_TRUE(store.write(bytes_of("sense")).ok());
  store = *RecordStore::open("", scope_);  // gives the lock up
  EXPECT_EQ(kept(), "sense");
}

// ---- one process at a time

TEST_F(RecordStoreTest, ASecondProcessIsToldTheHolder) {
  const RecordStore store = open();
  const std::string mine = "process " + std::to_string(::getpid()) + " on host ";
  EXPECT_EQ(in_child([&] {
              const Result<RecordStore> other = RecordStore::open(folder_, scope_);
              if (other.status().code() != StatusCode::kRefused) ::_exit(1);
              if (other.status().message().find(mine) == std::string::npos) ::_exit(2);
              if (other.status().message().find("COLLAB_RUN") == std::string::npos) ::_exit(3);
            }),
            0);
  EXPECT_EQ(RecordStore::open(folder_, scope_).status().code(), StatusCode::kRefused);  // nor twice in one
}

TEST_F(RecordStoreTest, WritingDoesNotLoseTheLock) {
  RecordStore store = open();
  ASSERT_TRUE(store.write(bytes_of("a")).ok());
  ASSERT_TRUE(store.write(bytes_of("b")).ok());
  EXPECT_EQ(RecordStore::open(folder_, scope_).status().code(), StatusCode::kRefused);
}

TEST_F(RecordStoreTest, AProcessThatIsKilledLeavesRecordAndNoLock) {
  EXPECT_EQ(in_child([&] {
              Result<RecordStore> store = RecordStore::open(folder_, scope_);
              if (!store.ok() || !store->write(bytes_of("last words")).ok()) ::_exit(1);
              ::raise(SIGKILL);
            }),
            -SIGKILL);
  EXPECT_EQ(kept(), "last words");
}

TEST_F(RecordStoreTest, AForkedChildThatLivesOnDoesNotKeepTheLock) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  pid_t child = -1;
  {
    const RecordStore store = open();
    child = ::fork();
    if (child == 0) {
      char byte = 0;
      ::close(pipe[1]);
      [[maybe_unused]] const ssize_t got = ::read(pipe[0], &byte, 1);  // until our end is closed
      ::_exit(0);
    }
  }
  EXPECT_TRUE(RecordStore::open(folder_, scope_).ok());
  ::close(pipe[0]);
  ::close(pipe[1]);
  ::waitpid(child, nullptr, 0);
}

// ---- its end

TEST_F(RecordStoreTest, ACleanEndLeavesNothing) {
  RecordStore store = open();
  ASSERT_TRUE(store.write(bytes_of("x")).ok());
  ASSERT_TRUE(store.remove().ok());
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_FALSE(store.durable());
  const RecordStore next = open();  // the name is free, the old lock is not in its way
  EXPECT_EQ(next.read(), std::nullopt);
}

// ---- torn by nothing

TEST_F(RecordStoreTest, ACrashAtAnyCallLeavesTheOldRecordOrTheNew) {
  bool was_new = false;
  bool was_old = false;
  for (int at = 1;; ++at) {
    fs::remove_all(folder_);
    keep("the old record");
    const int status = in_child([&] {
      DyingDisk disk(at);
      Result<RecordStore> store = RecordStore::open(folder_, scope_, disk);
      if (!store.ok() || !store->read() || !store->write(bytes_of("the new record, which is longer")).ok()) ::_exit(1);
    });
    const std::string now = kept();
    EXPECT_TRUE(now == "the old record" || now == "the new record, which is longer") << at << ": " << now;
    (now == "the old record" ? was_old : was_new) = true;
    if (status != DyingDisk::kStatus) {
      EXPECT_EQ(status, 0);
      EXPECT_GT(at, 12);  // each call of open() and write() was one
      break;
    }
  }
  EXPECT_TRUE(was_old && was_new);
}

TEST_F(RecordStoreTest, BytesAreDurableBeforeTheyHaveTheName) {
  NotingDisk disk;
  RecordStore store = open(disk);
  disk.calls.clear();
  ASSERT_TRUE(store.write(bytes_of("x")).ok());
  const std::string name = record_name(scope_);
  EXPECT_THAT(disk.calls, ElementsAre("make " + name + ".new", "write", "sync", "rename " + name + ".new " + name,
                                      StartsWith("open "), "sync"));
}

// ---- where it cannot be kept

TEST_F(RecordStoreTest, ARecordWithoutAFolderIsInMemoryAndLogsNothing) {
  ::testing::internal::CaptureStderr();
  Result<RecordStore> store = RecordStore::open("", scope_);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(store->write(bytes_of("x")).ok());
  EXPECT_TRUE(store->set_aside("x").ok());
  EXPECT_TRUE(store->remove().ok());
  EXPECT_FALSE(store->durable());
  EXPECT_FALSE(store->stale());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(RecordStoreTest, AFileInPlaceOfTheFolderIsReportedOnce) {
  std::ofstream(folder_) << "a file";
  ::testing::internal::CaptureStderr();
  RecordStore store = open();
  EXPECT_TRUE(store.write(bytes_of("a")).ok());
  EXPECT_TRUE(store.write(bytes_of("b")).ok());
  EXPECT_FALSE(store.durable());
  EXPECT_FALSE(store.stale());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(folder_));
  EXPECT_THAT(said, HasSubstr("COLLAB_STATE_DIR"));
  EXPECT_EQ(said.find('\n'), said.size() - 1);
}

TEST_F(RecordStoreTest, ARecordThatCannotBeWrittenBackIsNotTrusted) {
  keep("promised 5");
  FailingDisk disk;
  disk.making = disk.removing = disk.renaming = EROFS;
  ::testing::internal::CaptureStderr();
  const RecordStore store = open(disk);
  EXPECT_EQ(store.read(), std::nullopt);
  EXPECT_FALSE(store.durable());
  EXPECT_TRUE(store.stale());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("remove it before the next start"));
}

TEST_F(RecordStoreTest, AFullDiskRemovesTheRecordOfAnEarlierProcess) {
  keep("promised 5");
  {
    FailingDisk disk;
    disk.writing = ENOSPC;
    const RecordStore store = open(disk);
    EXPECT_EQ(store.read(), std::nullopt);
    EXPECT_FALSE(store.stale());
  }
  EXPECT_EQ(kept(), "");
}

TEST_F(RecordStoreTest, AFailedWriteIsReportedOnceAndLeavesNoOldRecord) {
  for (std::atomic<int> FailingDisk::*const call :
       {&FailingDisk::making, &FailingDisk::writing, &FailingDisk::syncing, &FailingDisk::renaming}) {
    fs::remove_all(folder_);
    FailingDisk disk;
    RecordStore store = open(disk);
    ASSERT_TRUE(store.write(bytes_of("promised 5")).ok());
    (disk.*call) = ENOSPC;
    ::testing::internal::CaptureStderr();
    const Status failed = store.write(bytes_of("promised 6"));
    EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
    EXPECT_THAT(failed.message(), HasSubstr("No space left"));
    EXPECT_FALSE(store.durable());
    EXPECT_TRUE(store.write(bytes_of("promised 7")).ok());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
    EXPECT_FALSE(fs::exists(path()));
    EXPECT_FALSE(fs::exists(path() + ".new"));
    // That it is removed is not durable either where nothing can be.
    EXPECT_EQ(store.stale(), call == &FailingDisk::syncing);
  }
  EXPECT_EQ(kept(), "");
}

TEST_F(RecordStoreTest, ARecordThatCannotBeRemovedIsStale) {
  FailingDisk disk;
  RecordStore store = open(disk);
  ASSERT_TRUE(store.write(bytes_of("promised 5")).ok());
  disk.making = disk.removing = EROFS;
  EXPECT_EQ(store.write(bytes_of("promised 6")).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(store.stale());
  disk.removing = 0;
  EXPECT_TRUE(store.remove().ok());
  EXPECT_FALSE(store.stale());
}

TEST_F(RecordStoreTest, DamageThatCannotBePutAsideIsRemoved) {
  keep("promised 5");
  put({'x'});
  FailingDisk disk;
  disk.renaming = EIO;
  const RecordStore store = open(disk);
  EXPECT_EQ(store.read(), std::nullopt);
  EXPECT_FALSE(store.durable());
  EXPECT_FALSE(fs::exists(path()));
}

}  // namespace
}  // namespace collab::testing
