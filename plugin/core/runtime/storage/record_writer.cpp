#include "core/runtime/storage/record_writer.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "core/base/log.h"

namespace collab {

struct RecordWriter::Job {
  enum class Kind : std::uint8_t { kWrite, kRemove };
  Kind kind = Kind::kWrite;
  std::vector<std::byte> body{};
  std::vector<std::uint64_t> numbers{};
};

// Outlives the writer if its thread hangs in a call of the disk.
struct RecordWriter::Shared {
  Shared(RecordStore of, Callback callback) : store(std::move(of)), told(std::move(callback)) {
    durable = store.durable();
    stale = store.stale();
  }

  void run();
  void notify(const Job& job, const Status& how);

  RecordStore store;  // the writer's thread only
  std::atomic<bool> durable{false};
  std::atomic<bool> stale{false};

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool ending = false;
  bool ended = false;

  std::mutex telling;  // guards `told`; held while it is called
  Callback told;
};

void RecordWriter::Shared::run() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return ending || !jobs.empty(); });
      if (jobs.empty()) break;
      job = std::move(jobs.front());
      jobs.pop_front();
    }
    Status how;
    switch (job.kind) {
      case Job::Kind::kWrite: how = store.write(job.body); break;
      case Job::Kind::kRemove:
        how = store.remove();
        if (!how.ok())
          log_warning("the record " + store.path() + " could not be removed: " + how.message() +
                      " [record.not-removed]");
        break;
    }
    durable = store.durable();
    stale = store.stale();
    notify(job, how);
  }
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

void RecordWriter::Shared::notify(const Job& job, const Status& how) {
  const std::lock_guard lock(telling);
  for (const std::uint64_t number : job.numbers) {
    if (told) told(number, how);
  }
}

RecordWriter::RecordWriter(RecordStore store, Callback told, std::chrono::milliseconds disk_limit)
    : shared_(std::make_shared<Shared>(std::move(store), std::move(told))), disk_limit_(disk_limit) {
  thread_ = std::thread([shared = shared_] { shared->run(); });
}

RecordWriter::~RecordWriter() {
  bool ended = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->ending = true;
    shared_->changed.notify_all();
    ended = shared_->changed.wait_for(lock, disk_limit_, [this] { return shared_->ended; });
  }
  if (ended) {
    thread_.join();
    return;
  }
  log_warning("the disk has not taken the record " + shared_->store.path() + " for " +
              std::to_string(disk_limit_.count()) + " ms: its last contents may be lost [record.disk-slow]");
  thread_.detach();
  const std::lock_guard lock(shared_->telling);
  shared_->told = nullptr;
}

void RecordWriter::write(std::vector<std::byte> body, std::uint64_t number) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->jobs.empty() || shared_->jobs.back().kind != Job::Kind::kWrite) shared_->jobs.emplace_back();
  Job& waiting = shared_->jobs.back();
  waiting.body = std::move(body);
  waiting.numbers.push_back(number);
  shared_->changed.notify_all();
}

void RecordWriter::remove() {
  const std::lock_guard lock(shared_->mutex);
  shared_->jobs.push_back({.kind = Job::Kind::kRemove});
  shared_->changed.notify_all();
}

bool RecordWriter::durable() const { return shared_->durable; }
bool RecordWriter::stale() const { return shared_->stale; }

}  // namespace collab
