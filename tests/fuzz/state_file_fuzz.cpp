// The state file on disk: any bytes; and any header behind a hash that is right. A state that was written is read.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/digest.h"
#include "core/runtime/storage/state_file.h"
#include "core/wire/encoding.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/runtime/whole_state.h"

namespace collab::fuzz {
namespace {

constexpr std::size_t kHashAt = 16;
constexpr std::size_t kHeaderAt = 24;

// In memory, where there is such a folder; gone with this. A plain file: no link is followed to a state.
class PlainFile {
 public:
  PlainFile() {
    std::error_code none;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", none);
    path_ = (in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/state-file-fuzz-XXXXXX";
    fd_ = ::mkstemp(path_.data());
    FUZZ_CHECK(fd_ >= 0);
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;
  ~PlainFile() {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  void set(std::span<const std::byte> bytes) const {
    FUZZ_CHECK(::ftruncate(fd_, 0) == 0);
    FUZZ_CHECK(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  std::string path_;
  int fd_ = -1;
};

// Whether all of it was read.
bool check(std::span<const std::byte> bytes) {
  static const PlainFile kFile;
  kFile.set(bytes);
  const auto header = read_state_header(kFile.path());
  if (!header.ok()) {
    FUZZ_CHECK(!header.status().message().empty());
    FUZZ_CHECK(header.status().code() != StatusCode::kInternal);  // the file itself can be opened and read
    return false;
  }
  FUZZ_CHECK(header->has_value());
  const StateHeader& found = **header;
  FUZZ_CHECK(found.elements <= bytes.size());              // a header may not claim vectors the file does not have
  FUZZ_CHECK(!wire::encode_record(found.record).empty());  // as the next start does
  std::vector<float> anchor(found.elements);
  std::vector<float> outer(found.outer_state ? found.elements : 0);
  const Status status = read_state_into(kFile.path(), found, anchor, outer);
  FUZZ_CHECK(status.ok() || !status.message().empty());
  if (found.residual.empty()) return status.ok();
  const Result<StoredResidual> residual = read_residual(kFile.path(), found);
  FUZZ_CHECK(residual.ok() ? residual->values.size() == found.elements : !residual.status().message().empty());
  return status.ok() && residual.ok();
}

// The same bytes with the header's hash set right.
std::vector<std::byte> sealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  if (file.size() < kHeaderAt) return file;
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < 4; ++i) header_bytes |= std::to_integer<std::size_t>(file[12 + i]) << (8 * i);
  header_bytes = std::min(header_bytes, file.size() - kHeaderAt);
  std::vector<std::byte> hashed(file.begin() + 8, file.begin() + 12);  // the format
  const auto header = std::span(file).subspan(kHeaderAt, header_bytes);
  hashed.insert(hashed.end(), header.begin(), header.end());
  const std::uint64_t hash = hash64(hashed);
  for (std::size_t i = 0; i < 8; ++i) file[kHashAt + i] = static_cast<std::byte>(hash >> (8 * i));
  return file;
}

}  // namespace

std::vector<Input> seed_inputs() {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "state-file-fuzz-XXXXXX").string();
  FUZZ_CHECK(::mkdtemp(folder.data()) != nullptr);
  std::vector<Input> inputs;
  for (const bool outer_state : {false, true}) {
    StateHeader header{"night-run", "paris", RunId(3), RoundId(4), {}, {5, 6}, 20, outer_state, {}, {}, {}, {}};
    header.record.voters = {{SiteId(0), "paris", AcceptorId(8)}, {SiteId(1), "oslo", AcceptorId(9), true}};
    if (outer_state) header.egress = {9'000'000, 250'000};
    header.model = {{"wte.weight", "float32", {4, 5}, TensorKind::kAveraged, {}},
                    {"mask", "bool", {3}, TensorKind::kFrozen, {7, 8}},
                    {"table", "float32", {2}, TensorKind::kLeftOut, {9, 1}}};
    const std::vector<float> anchor(20, 1.5F);
    const std::vector<float> outer(outer_state ? 20 : 0, 0.5F);
    header.digest = digest_of_state(digest_of_vector(anchor), outer_state ? digest_of_vector(outer) : Digest{});
    const std::string path = state_path(folder, "paris");
    const std::vector<float> residual(outer_state ? 20 : 0, -0.25F);
    if (outer_state) header.residual = {{digest_of_vector(residual), {0.5F, 0.25F, {{0, 4}, {8, 20}}}}};
    FUZZ_CHECK(write_state(path, header, anchor, outer, residual).ok());
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    FUZZ_CHECK(check(std::as_bytes(std::span(inputs.back()))));  // else nothing here tests what reads it
  }
  fs::remove_all(folder);
  return inputs;
}

}  // namespace collab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  collab::fuzz::check(bytes);
  collab::fuzz::check(collab::fuzz::sealed(bytes));
  return 0;
}
