// A rank's link to the collective hub of its world.
#include <pybind11/stl.h>

#include "core/runtime/hub_link.h"
#include "torch/bindings.h"
#include "torch/interruptible.h"

namespace py = pybind11;

namespace collab::torch_adapter {
namespace {

std::unique_ptr<PyHubLink> connect(const PyConfig& config, const py::dict& transport, std::uint64_t world,
                                   std::uint32_t rank, std::vector<std::string> sites,
                                   std::vector<std::uint32_t> site_of, std::vector<std::string> hubs) {
  Interruptible calls;
  HubLink::Options options{config.loaded.config, world, rank, std::move(sites), std::move(site_of), std::move(hubs)};
  using Shared = std::shared_ptr<HubLink>;
  Result<Shared> hub_link = calls.call([factory = transport_factory(transport), options]() -> Result<Shared> {
    Result<std::unique_ptr<HubLink>> entered = with_transport(
        factory, [&](std::unique_ptr<Transport> made) { return HubLink::enter(options, std::move(made)); });
    if (!entered.ok()) return entered.status();
    return without_lock(std::move(entered).value());
  });
  return std::make_unique<PyHubLink>(PyHubLink{value_or_raise(std::move(hub_link))});
}

}  // namespace

void bind_hub(py::module_& module) {
  py::class_<PyHubLink>(module, "HubLink").def("leave", [](const PyHubLink& hub_link, const std::string& reason) {
    const py::gil_scoped_release released;
    hub_link.hub_link->leave(reason);
  });
  module.def("connect_hub", &connect, py::kw_only(), py::arg("config"), py::arg("transport"), py::arg("world"),
             py::arg("rank"), py::arg("sites"), py::arg("site_of"), py::arg("hubs"));
}

}  // namespace collab::torch_adapter
