#include "core/runtime/storage/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/digest.h"
#include "core/base/little_endian.h"
#include "core/base/own_descriptor.h"
#include "core/wire/byte_io.h"
#include "core/wire/fields.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab {
namespace {

constexpr std::array<char, 8> kStateMagic{'c', 'o', 'l', 'l', 'a', 'b', 'S', 'F'};
constexpr std::uint32_t kStateVersion = 7;
constexpr std::size_t kStatePrologueBytes = 24;
constexpr std::size_t kStateHashAt = 16;
constexpr std::uint64_t kEnded = std::uint64_t{0xff} << 56;  // that byte of the hash is inverted
constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 64;  // the vectors begin at multiples of it

std::string error_text() { return std::strerror(errno); }

// A share of the mean, kept as float32.
void share_field(wire::Writer& io, const char* name, const float& share) { io.weight(name, double{share}); }
void share_field(wire::Reader& io, const char* name, float& share) {
  double came = 0;
  io.weight(name, came);
  share = static_cast<float>(came);
}

template <typename Io, typename Record>
void residual_fields(Io& io, Record& record) {
  io.part("digest", record.digest);
  share_field(io, "share", record.units.share);
  share_field(io, "equal", record.units.equal);
  io.list("of_mean", record.units.of_mean, wire::kMaxSlices, 16, [&io](auto& range) { wire::fields(io, range); });
}

// Reads and writes the header, as for wire messages. `Header` is const when writing.
template <typename Io, typename Header>
void header_fields(Io& io, Header& header) {
  io.text("swarm", header.swarm, wire::kMaxNameBytes);
  io.text("site", header.site, wire::kMaxNameBytes);
  io.id("run", header.run);
  io.number("round", header.round.value, wire::kMaxRound);
  io.part("digest", header.digest);
  io.part("fingerprint", header.fingerprint);
  io.number("elements", header.elements, wire::kMaxElements);
  io.boolean("outer_state", header.outer_state);
  io.part("record", header.record);
  io.list("residual", header.residual, 1, 36, [&io](auto& record) { residual_fields(io, record); });
  io.number("egress_spent", header.egress.spent);
  io.number("egress_round", header.egress.round);
  constexpr std::size_t kLeastTensorBytes = 2 + 2 + 4 + 1 + 16;
  io.list("model", header.model, wire::kMaxModelEntries, kLeastTensorBytes, [&io](auto& tensor) {
    io.text("name", tensor.name, wire::kMaxNameBytes);
    io.text("dtype", tensor.dtype, wire::kMaxNameBytes);
    io.list("shape", tensor.shape, wire::kMaxDims, 8, [&io](auto& extent) { io.number("extent", extent); });
    io.enumeration("kind", tensor.kind, TensorKind::kLeftOut);
    io.part("digest", tensor.digest);
  });
}

std::uint64_t vectors_offset(std::uint64_t header_bytes) {
  return (kStatePrologueBytes + header_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint64_t vectors_bytes(const StateHeader& header) {
  return header.elements * sizeof(float) * (1 + (header.outer_state ? 1 : 0) + header.residual.size());
}

// The condition between the fields of a residual's record that does not hold; empty if all hold.
std::string fault_of(const StateHeader& header) {
  for (const ResidualRecord& record : header.residual) {
    const ResidualUnits& units = record.units;
    if (!(units.share >= 0 && units.share <= 1)) return "residual.share: expected a number from 0 to 1";
    if (!(units.equal > 0 && units.equal <= 1)) return "residual.equal: expected a number above 0, at most 1";
    std::uint64_t covered = 0;
    for (const ElementRange& range : units.of_mean) {
      if (range.begin < covered || range.end <= range.begin || range.end > header.elements) {
        return "residual.of_mean: expected ranges of the " + std::to_string(header.elements) +
               " elements, ascending and apart";
      }
      covered = range.end;
    }
  }
  return {};
}

// Includes the format, which comes before the header: headers of two formats may have the same bytes.
std::uint64_t header_hash(std::span<const std::byte> body) {
  std::vector<std::byte> hashed(sizeof kStateVersion + body.size());
  store_little(std::span(hashed), kStateVersion);
  std::ranges::copy(body, hashed.begin() + sizeof kStateVersion);
  return hash64(hashed);
}

// Prologue, header and padding: all that comes before the vectors.
Result<std::vector<std::byte>> encode_start(const StateHeader& header) {
  wire::Writer writer;
  header_fields(writer, header);
  COLLAB_RETURN_IF_ERROR(writer.status());
  const std::vector<std::byte>& body = writer.bytes();
  std::vector<std::byte> start(vectors_offset(body.size()), std::byte{0});
  std::memcpy(start.data(), kStateMagic.data(), kStateMagic.size());
  store_little(std::span(start).subspan(8), kStateVersion);
  store_little(std::span(start).subspan(12), static_cast<std::uint32_t>(body.size()));
  store_little(std::span(start).subspan(kStateHashAt), header_hash(body));
  std::copy(body.begin(), body.end(), start.begin() + kStatePrologueBytes);
  return start;
}

struct Opened {
  StateHeader header;
  std::uint64_t hash = 0;  // of the header
  std::uint64_t vectors_at = 0;
};

Status damaged(const std::string& path, const std::string& what) {
  return corrupt("the state file " + path + " is damaged: " + what +
                 "; move it away, and this site takes the anchor from the others [state.damaged]");
}

Result<Opened> read_start(const OwnDescriptor& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return internal_error("cannot look at " + path + ": " + error_text() + " [state.stat]");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  std::array<std::byte, kStatePrologueBytes> prologue{};
  if (size < kStatePrologueBytes || !read_all(file.get(), prologue, 0)) {
    return damaged(path, "it has " + std::to_string(size) + " bytes, at least " + std::to_string(kStatePrologueBytes) +
                             " were expected");
  }
  if (std::memcmp(prologue.data(), kStateMagic.data(), kStateMagic.size()) != 0) {
    return damaged(path, "it does not begin as a state file does (wrong magic number)");
  }
  const auto version = load_little<std::uint32_t>(std::span(prologue).subspan(8));
  if (version != kStateVersion) {
    return refused("the state file " + path + " has format " + std::to_string(version) +
                   ", but this collab reads format " + std::to_string(kStateVersion) +
                   ": use the collab that wrote it, or move it away [state.format]");
  }
  const auto header_bytes = load_little<std::uint32_t>(std::span(prologue).subspan(12));
  if (header_bytes > kMaxHeaderBytes || header_bytes > size - kStatePrologueBytes) {
    return damaged(path,
                   "its header claims " + std::to_string(header_bytes) + " bytes of a file of " + std::to_string(size));
  }
  std::vector<std::byte> body(header_bytes);
  if (!read_all(file.get(), body, kStatePrologueBytes)) return damaged(path, "its header ends early");
  const auto said = load_little<std::uint64_t>(std::span(prologue).subspan(kStateHashAt));
  const std::uint64_t hash = header_hash(body);
  if (said != hash && said != (hash ^ kEnded)) return damaged(path, "the checksum of its header does not match");
  Opened opened;
  opened.header.ended = said != hash;
  opened.hash = hash;
  wire::Reader reader(body);
  header_fields(reader, opened.header);
  reader.finish();
  if (!reader.status().ok()) return damaged(path, reader.status().message());
  if (const Status record = wire::check_rules(opened.header.record); !record.ok())
    return damaged(path, record.message());
  if (const std::string fault = fault_of(opened.header); !fault.empty()) return damaged(path, fault);
  opened.vectors_at = vectors_offset(header_bytes);
  const std::uint64_t padded_from = kStatePrologueBytes + header_bytes;
  std::array<std::byte, kAlignment> padding{};
  const auto rest = std::span(padding).first(opened.vectors_at - padded_from);
  if (!read_all(file.get(), rest, padded_from)) return damaged(path, "it ends after its header");
  if (std::ranges::any_of(rest, [](std::byte b) { return b != std::byte{0}; })) {
    return damaged(path, "the bytes between header and vectors are not zero");
  }
  const std::uint64_t expected = opened.vectors_at + vectors_bytes(opened.header);
  if (size != expected) {
    return damaged(path, "it has " + std::to_string(size) + " bytes, its header asks for " + std::to_string(expected));
  }
  return opened;
}

// Where the vectors of the file begin, if the file still has this header.
Result<std::uint64_t> open_again(const OwnDescriptor& file, const std::string& path, const StateHeader& header) {
  if (file.get() < 0)
    return internal_error("cannot open the state file " + path + ": " + error_text() + " [state.open]");
  const Result<Opened> opened = read_start(file, path);
  if (!opened.ok()) return opened.status();
  const StateHeader& now = opened->header;
  if (now.run != header.run || now.round != header.round || now.digest != header.digest ||
      now.elements != header.elements || now.outer_state != header.outer_state ||
      now.residual.size() != header.residual.size()) {
    return unavailable("the state file " + path + " was replaced (round " + std::to_string(header.round.value) +
                       " before, round " + std::to_string(now.round.value) +
                       " now); read its header again [state.replaced]");
  }
  return opened->vectors_at;
}

constexpr std::uint64_t kPieceElements = 4 * kDigestChunkElements;  // 1 MiB

[[nodiscard]] std::uint64_t vectors_of(const StateHeader& header, StatePart part) {
  switch (part) {
    case StatePart::kAnchor: return 1;
    case StatePart::kOuter: return header.outer_state ? 1 : 0;
    case StatePart::kResidual: return header.residual.size();
  }
  return 0;
}

// Writes one of the vectors to its place. Returns its digest.
Result<Digest> write_part(NewFile& file, std::uint64_t at, StatePart part, std::uint64_t elements,
                          const StatePieces& pieces) {
  std::vector<float> piece;
  DigestChain chain;
  for (std::uint64_t offset = 0; offset < elements; offset += kPieceElements) {
    piece.resize(std::min(kPieceElements, elements - offset));
    if (!pieces(part, offset, piece)) return cancelled("its memory was needed [state.cancelled]");
    for (std::size_t tile = 0; tile < piece.size(); tile += kDigestChunkElements) {
      const std::size_t count = std::min<std::size_t>(kDigestChunkElements, piece.size() - tile);
      if (part == StatePart::kResidual) chain.add(hash128(as_bytes_of(std::span(piece).subspan(tile, count))));
    }
    COLLAB_RETURN_IF_ERROR(file.write(at + offset * sizeof(float), std::as_bytes(std::span(piece))));
  }
  return chain.finish();
}

Status write_whole(NewFile& file, StateHeader& header, const StatePieces& pieces) {
  Result<std::vector<std::byte>> start = encode_start(header);
  if (!start.ok()) return start.status();
  const std::uint64_t vector = header.elements * sizeof(float);
  std::uint64_t end = start->size() + vectors_bytes(header);
  for (const StatePart part : {StatePart::kResidual, StatePart::kOuter, StatePart::kAnchor}) {  // the last vector first
    if (vectors_of(header, part) == 0) continue;
    end -= vector;
    const Result<Digest> digest = write_part(file, end, part, header.elements, pieces);
    if (!digest.ok()) return digest.status();
    if (part == StatePart::kResidual) header.residual.front().digest = *digest;
  }
  start = encode_start(header);  // as long as before
  if (!start.ok()) return start.status();
  COLLAB_RETURN_IF_ERROR(file.write(0, *start));
  COLLAB_RETURN_IF_ERROR(file.sync());
  return file.place();
}

}  // namespace

std::string state_path(const std::string& dir, const std::string& site, std::uint32_t generation) {
  std::string name = as_file_name(site);
  if (generation > 1) name += "~" + std::to_string(generation);  // no site's name contains "~"
  return dir + "/" + name + ".collab";
}

Status check_state_writable(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // The probe is removed again here, and has a name of its own. Otherwise a process that is refused later would destroy
  // the save of the process that writes here.
  const Result<NewFile> probe = NewFile::make(system_disk(), path + "." + std::to_string(::getpid()));
  if (probe.ok()) return {};
  return invalid_argument("COLLAB_STATE_DIR: " + probe.status().message() +
                          "; name a directory this process may write to [state.not-writable]");
}

Status write_state(Disk& disk, const std::string& path, StateHeader header, const StatePieces& pieces) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);  // a failure shows below
  const auto text_of = [&](const Status& status) {
    if (status.ok() || status.code() == StatusCode::kCancelled) return status;
    return Status(status.code(), status.message() + " (" + std::to_string(vectors_bytes(header)) +
                                     " bytes are to be written); COLLAB_STATE_DIR needs a folder with room that we "
                                     "may write to");
  };
  Result<NewFile> file = NewFile::make(disk, path);
  if (!file.ok()) return text_of(file.status());
  return text_of(write_whole(*file, header, pieces));
}

// Writes one byte, which no crash can split.
Status mark_ended(Disk& disk, const std::string& path, bool ended) {
  const OwnDescriptor file(open_plain(disk, path.c_str(), O_RDWR));
  if (file.get() < 0 && errno == ENOENT) return {};
  if (file.get() < 0) return unavailable("cannot open the state file " + path + ": " + error_text());
  const Result<Opened> opened = read_start(file, path);
  if (!opened.ok()) return opened.status();
  if (opened->header.ended == ended) return {};
  const auto last = static_cast<std::byte>((ended ? opened->hash ^ kEnded : opened->hash) >> 56);
  const bool written = disk.pwrite(file.get(), &last, 1, kStateHashAt + 7) == 1;
  if (written && disk.fsync(file.get()) == 0) return {};
  return unavailable("cannot write to the state file " + path + ": " + error_text());
}

Result<std::optional<StateHeader>> read_state_header(const std::string& path) {
  const OwnDescriptor file(open_plain(system_disk(), path.c_str(), O_RDONLY));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::optional<StateHeader>();
    return internal_error("cannot open the state file " + path + ": " + error_text() + " [state.open]");
  }
  Result<Opened> opened = read_start(file, path);
  if (!opened.ok()) return opened.status();
  return std::optional<StateHeader>(std::move(opened->header));
}

Status read_state_into(const std::string& path, const StateHeader& header, std::span<float> anchor,
                       std::span<float> outer) {
  if (anchor.size() != header.elements || outer.size() != (header.outer_state ? header.elements : 0)) {
    return invalid_argument("a state of " + std::to_string(header.elements) + " elements" +
                            (header.outer_state ? " with" : " without") + " outer state cannot be read into " +
                            std::to_string(anchor.size()) + " and " + std::to_string(outer.size()) +
                            " [state.read-sizes]");
  }
  const OwnDescriptor file(open_plain(system_disk(), path.c_str(), O_RDONLY));
  const Result<std::uint64_t> vectors_at = open_again(file, path, header);
  if (!vectors_at.ok()) return vectors_at.status();
  if (!read_all(file.get(), std::as_writable_bytes(anchor), *vectors_at) ||
      !read_all(file.get(), std::as_writable_bytes(outer), *vectors_at + anchor.size_bytes())) {
    return damaged(path, "its vectors end early: " + error_text());
  }
  const Digest came = digest_of_state(digest_of_vector(anchor), outer.empty() ? Digest{} : digest_of_vector(outer));
  if (came != header.digest) {
    return damaged(path,
                   "anchor and outer state have digest " + to_hex(came) + ", its header says " + to_hex(header.digest));
  }
  return {};
}

Result<StoredResidual> read_residual(const std::string& path, const StateHeader& header) {
  if (header.residual.empty())
    return invalid_argument("the state file " + path + " holds no residual [state.no-residual]");
  const ResidualRecord& record = header.residual.front();
  const OwnDescriptor file(open_plain(system_disk(), path.c_str(), O_RDONLY));
  const Result<std::uint64_t> vectors_at = open_again(file, path, header);
  if (!vectors_at.ok()) return vectors_at.status();
  StoredResidual stored{header.run, record.units, std::vector<float>(header.elements)};
  const std::uint64_t before = header.elements * sizeof(float) * (header.outer_state ? 2 : 1);
  if (!read_all(file.get(), std::as_writable_bytes(std::span(stored.values)), *vectors_at + before)) {
    return damaged(path, "its residual ends early: " + error_text());
  }
  if (const Digest came = digest_of_vector(stored.values); came != record.digest) {
    return damaged(path, "its residual has digest " + to_hex(came) + ", its header says " + to_hex(record.digest));
  }
  if (!std::ranges::all_of(stored.values, [](float value) { return std::isfinite(value); })) {
    return damaged(path, "its residual holds NaN or infinity");
  }
  return stored;
}

}  // namespace collab
