// Digests of tensors, state files, records and shared-memory arenas.
#include <ATen/ATen.h>
#include <pybind11/stl.h>

#include "core/arena/arena.h"
#include "core/base/digest.h"
#include "core/runtime/storage/record_files.h"
#include "core/runtime/storage/state_file.h"
#include "torch/bindings.h"

namespace py = pybind11;

namespace collab::torch_adapter {

Digest digest_from_hex(const std::string& text) {
  const bool hex = text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex) raise(invalid_argument("a digest is 32 lower-case hex digits, got '" + text + "' [state.digest]"));
  return {std::stoull(text.substr(16), nullptr, 16), std::stoull(text.substr(0, 16), nullptr, 16)};
}

namespace {

// The digest of the logical elements' bytes, in row-major order.
std::string tensor_digest(const at::Tensor& tensor) {
  const py::gil_scoped_release released;
  const at::Tensor host = tensor.detach().cpu().contiguous();
  const auto* first = static_cast<const std::byte*>(host.const_data_ptr());
  return to_hex(hash128({first, host.nbytes()}));
}

StateHeader header_of(const std::string& path) {
  Result<std::optional<StateHeader>> header = read_state_header(path);
  if (!header.ok()) raise(header.status());
  if (!header->has_value()) {
    PyErr_SetString(PyExc_FileNotFoundError, ("there is no state file " + path).c_str());
    throw py::error_already_set();
  }
  return **header;
}

py::dict header_dict(const StateHeader& header) {
  py::list model;
  for (const TensorInfo& tensor : header.model) {
    model.append(py::make_tuple(tensor.name, tensor.dtype, tensor.shape, std::string(name_of(tensor.kind)),
                                tensor.kind == TensorKind::kAveraged ? std::string() : to_hex(tensor.digest)));
  }
  py::dict d;
  d["swarm"] = header.swarm;
  d["run"] = header.run.value;
  d["round"] = header.round.value;
  d["model"] = model;
  return d;
}

std::span<float> floats_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

py::tuple read_state(const std::string& path) {
  const StateHeader header = header_of(path);
  const at::Tensor anchor = at::empty({static_cast<int64_t>(header.elements)}, at::kFloat);
  // Read too, as the file's digest covers both.
  const at::Tensor outer = at::empty({header.outer_state ? anchor.numel() : 0}, at::kFloat);
  const Status status = [&] {
    const py::gil_scoped_release released;
    return read_state_into(path, header, floats_of(anchor), floats_of(outer));
  }();
  raise(status);
  return py::make_tuple(header_dict(header), anchor);
}

std::vector<std::tuple<std::string, std::uint64_t, std::string>> orphans() {
  std::vector<std::tuple<std::string, std::uint64_t, std::string>> rows;
  for (const OrphanArena& orphan : find_orphan_arenas()) rows.emplace_back(orphan.path, orphan.bytes, orphan.why);
  return rows;
}

void remove_orphan(const std::string& path) {
  for (const OrphanArena& orphan : find_orphan_arenas()) {
    if (orphan.path == path) return raise(remove_orphan_arena(orphan));
  }
  raise(invalid_argument(path + " is not an orphan: its owner is alive, or the file is gone [arena.no-orphan]"));
}

std::vector<std::tuple<std::string, std::uint64_t, std::int64_t, std::string>> records_in(const std::string& folder) {
  std::vector<std::tuple<std::string, std::uint64_t, std::int64_t, std::string>> rows;
  for (const RecordFile& record : find_records(folder)) {
    rows.emplace_back(record.path, record.bytes, record.age.count(), record.holder);
  }
  return rows;
}

}  // namespace

void bind_tensors(py::module_& module) {
  module.def("tensor_digest", &tensor_digest, py::arg("tensor"));
  module.def(
      "read_state_header", [](const std::string& path) { return header_dict(header_of(path)); }, py::arg("path"));
  module.def("read_state", &read_state, py::arg("path"));
  module.def("find_orphan_arenas", &orphans);
  module.def("remove_orphan_arena", &remove_orphan, py::arg("path"));
  module.def("find_records", &records_in, py::arg("folder"));
  module.def(
      "remove_record",
      [](const std::string& path, std::int64_t least) { raise(remove_record(path, std::chrono::seconds(least))); },
      py::arg("path"), py::arg("least"));
}

}  // namespace collab::torch_adapter
