// The module, its exceptions and the backend.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <set>

#include "collab/torch/backend.h"
#include "torch/bindings.h"
#include "torch/hub_backend.h"
#include "torch/work.h"

namespace py = pybind11;

// Releases torch's own backends without the interpreter's lock, as their destructors may wait for threads that need it.
template <typename T>
class NoGilHolder {
 public:
  NoGilHolder() = default;
  NoGilHolder(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}  // NOLINT(google-explicit-constructor)
  explicit NoGilHolder(T* pointer) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(pointer)) {}
  NoGilHolder(const NoGilHolder&) = default;
  NoGilHolder(NoGilHolder&&) noexcept = default;
  NoGilHolder& operator=(const NoGilHolder&) = default;
  NoGilHolder& operator=(NoGilHolder&&) noexcept = default;
  ~NoGilHolder() {
    if (!pointer_) return;
    if (PyGILState_Check() != 0) {
      const py::gil_scoped_release released;
      pointer_.reset();
    } else {
      pointer_.reset();
    }
  }
  T* get() const { return pointer_.get(); }
  T& operator*() const { return *pointer_; }
  T* operator->() const { return pointer_.get(); }

 private:
  c10::intrusive_ptr<T> pointer_;
};
PYBIND11_DECLARE_HOLDER_TYPE(T, NoGilHolder<T>, true)

namespace collab::torch_adapter {
namespace {

// Exception types live as long as the interpreter.
PyObject* refused_error = nullptr;
PyObject* corrupt_error = nullptr;

PyObject* new_error(py::module_& module, const char* name, const char* text) {
  PyObject* type =
      PyErr_NewExceptionWithDoc((std::string("torch_collab.") + name).c_str(), text, PyExc_RuntimeError, nullptr);
  if (type == nullptr) throw py::error_already_set();
  module.add_object(name, type);
  return type;
}

PyObject* python_error(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return PyExc_ValueError;
    case StatusCode::kTimeout: return PyExc_TimeoutError;
    case StatusCode::kUnavailable: return PyExc_ConnectionError;
    case StatusCode::kRefused: return refused_error;
    case StatusCode::kCorrupt: return corrupt_error;
    case StatusCode::kOk:
    case StatusCode::kOutdated:
    case StatusCode::kCancelled:
    case StatusCode::kInternal: break;
  }
  return PyExc_RuntimeError;
}

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// The ranks of the group that lead their sites, in ascending order of site.
std::vector<int> leaders_of(const std::vector<int>& sites) {
  std::vector<int> leaders;
  for (const int site : std::set<int>(sites.begin(), sites.end())) {
    leaders.push_back(static_cast<int>(std::find(sites.begin(), sites.end(), site) - sites.begin()));
  }
  return leaders;
}

// Adds groups over the collective hub. `ranks` (of the world) and `site_names` are by rank of the group. The new groups
// are numbered from `group_id`.
void add_hub(BackendOptions& options, const PyHubLink& hub_link, std::uint64_t group_id,
             const std::vector<std::uint32_t>& ranks, const std::vector<std::string>& site_names) {
  options.world = c10::make_intrusive<HubBackend>(
      HubBackendOptions{hub_link.hub_link, group_id, ranks, site_names, options.rank, options.timeout});
  const std::vector<int> leaders = leaders_of(options.sites);
  const auto mine = std::find(leaders.begin(), leaders.end(), options.rank);
  if (mine == leaders.end()) return;
  HubBackendOptions between{hub_link.hub_link, group_id + 1, {}, {}, static_cast<int>(mine - leaders.begin()),
                            options.timeout};
  for (const int leader : leaders) {
    between.ranks.push_back(ranks.at(static_cast<std::size_t>(leader)));
    between.sites.push_back(site_names.at(static_cast<std::size_t>(leader)));
  }
  options.leaders = c10::make_intrusive<HubBackend>(std::move(between));
}

NoGilHolder<CollabBackend> make_backend(int rank, int size, std::vector<int> sites, std::optional<BackendPtr> world,
                                        std::optional<BackendPtr> site, std::optional<BackendPtr> leaders,
                                        const PyHubLink* hub_link, std::uint64_t group_id,
                                        const std::vector<std::uint32_t>& ranks,
                                        const std::vector<std::string>& site_names, std::chrono::milliseconds timeout,
                                        bool is_world) {
  BackendOptions options;
  options.rank = rank;
  options.size = size;
  options.sites = std::move(sites);
  if (world) options.world = std::move(*world);
  if (site) options.site = std::move(*site);
  if (leaders) options.leaders = std::move(*leaders);
  options.timeout = timeout;
  options.is_world = is_world;
  if (hub_link != nullptr) add_hub(options, *hub_link, group_id, ranks, site_names);
  return c10::make_intrusive<CollabBackend>(std::move(options));
}

}  // namespace

void raise(const Status& status) {
  if (status.ok()) return;
  PyErr_SetString(python_error(status.code()), status.message().c_str());
  throw py::error_already_set();
}

void bind_errors(py::module_& module) {
  refused_error =
      new_error(module, "RefusedError", "A peer or the coordinator said no; the message has both sides' values.");
  corrupt_error =
      new_error(module, "CorruptError", "Bytes from a file or a peer fail a bound, a checksum or a digest.");
}

void bind_backend(py::module_& module) {
  py::module_::import("torch._C._distributed_c10d");  // defines the base class
  py::class_<CollabBackend, NoGilHolder<CollabBackend>, c10d::Backend>(module, "CollabBackend")
      .def("set_pre_barrier", &CollabBackend::set_pre_barrier, py::arg("callback").none(true))
      .def("most_at_barrier", &CollabBackend::most_at_barrier, py::arg("mine"),
           py::call_guard<py::gil_scoped_release>())
      .def("watch_steps", &CollabBackend::watch_steps, py::arg("watch").none(true))
      .def_property_readonly("single_site", &CollabBackend::single_site);
  module.def("set_in_step", &CollabBackend::set_in_step, py::arg("on"));
  module.def("call_communication_hook",
             [](const py::function& hook, const py::object& state, const py::object& bucket) {
               const CommunicationHookScope scope;
               return hook(state, bucket);
             });
  module.def("make_backend", &make_backend, py::kw_only(), py::arg("rank"), py::arg("size"), py::arg("sites"),
             py::arg("world") = py::none(), py::arg("site") = py::none(), py::arg("leaders") = py::none(),
             py::arg("hub_link") = py::none(), py::arg("group_id") = 0, py::arg("ranks") = std::vector<std::uint32_t>(),
             py::arg("site_names") = std::vector<std::string>(), py::arg("timeout"), py::arg("is_world") = false);
}

}  // namespace collab::torch_adapter

PYBIND11_MODULE(_C, module) {
  module.doc() = "The C++ half of torch_collab; use it through torch_collab.";
  collab::torch_adapter::bind_errors(module);
  collab::torch_adapter::bind_backend(module);
  collab::torch_adapter::bind_config(module);
  collab::torch_adapter::bind_hub(module);
  collab::torch_adapter::bind_session(module);
  collab::torch_adapter::bind_tensors(module);
}
