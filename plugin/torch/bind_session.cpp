// Sessions and coordinators.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "collab/session.h"
#include "core/base/open_files.h"
#include "core/runtime/line_probe.h"
#include "core/runtime/termination.h"
#include "tools/page/page.h"
#include "torch/bindings.h"
#include "torch/interruptible.h"
#include "torch/site_group.h"
#include "torch/tensor_vector.h"

namespace py = pybind11;

namespace collab::torch_adapter {

Digest digest_from_hex(const std::string& text);  // bind_tensors.cpp

namespace {

using TransportPtr = std::unique_ptr<Transport>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
// (name, dtype, shape, kind by name, digest as hex or empty)
using ModelRow = std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::string, std::string>;

Status check_bytes(const at::Tensor& bytes) {
  if (bytes.device().is_cpu() && bytes.scalar_type() == at::kByte && bytes.is_contiguous()) return {};
  return invalid_argument("expected a contiguous tensor of uint8 on the CPU, got a " + bytes.toString() +
                          " [optimizer.bytes]");
}
std::span<std::byte> bytes_of(const at::Tensor& bytes) {
  return {static_cast<std::byte*>(bytes.mutable_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

TensorKind kind_from_name(const std::string& name) {
  for (const TensorKind kind : {TensorKind::kFrozen, TensorKind::kAveraged, TensorKind::kLeftOut}) {
    if (name == name_of(kind)) return kind;
  }
  raise(invalid_argument("expected a tensor to be frozen, averaged or left out, got '" + name + "' [capture.kind]"));
  return TensorKind::kAveraged;
}

std::vector<TensorInfo> model_from(const std::vector<ModelRow>& rows) {
  std::vector<TensorInfo> model;
  for (const auto& [name, dtype, shape, kind, digest] : rows) {
    model.push_back({name, dtype, shape, kind_from_name(kind), digest.empty() ? Digest() : digest_from_hex(digest)});
  }
  return model;
}

// A copy of an optimizer's state from Python: (description, bytes), or a text that says why there is none.
Result<OptimizerCopy> copy_from(const py::object& given) {
  if (py::isinstance<py::str>(given)) return unavailable(given.cast<std::string>());
  auto [description, bytes] = given.cast<std::pair<std::string, at::Tensor>>();
  COLLAB_RETURN_IF_ERROR(check_bytes(bytes));
  const auto owner = std::make_shared<const at::Tensor>(bytes.detach());
  return OptimizerCopy{std::move(description), bytes_of(*owner), owner};
}

class PySession {
  template <typename... Body>
  auto call(Body... body) {
    if (calls_.idle()) before_call_ = session_->status();
    return calls_.call(std::move(body)...);
  }

 public:
  // `at_once`: counting a step needs no communication with other ranks. Ranks on several hosts need it.
  PySession(std::shared_ptr<Session> session, std::shared_ptr<TensorVector> vector, bool at_once)
      : session_(std::move(session)), vector_(std::move(vector)), at_once_(at_once) {}

  void begin() {
    raise(vector_->check());
    raise(call([session = session_] { return session->begin(); }));
  }
  bool count_step(std::uint64_t samples, const py::object& serve) {
    raise(vector_->check());
    const auto answer = [this, &serve] { answer_joiners(serve); };
    answer();
    if (at_once_ && calls_.idle() && !session_->is_ahead())
      return value_or_raise(session_->count_step(samples));  // the detour over a thread would cost tens of us
    return value_or_raise(call([session = session_, samples] { return session->count_step(samples); }, answer));
  }
  StepOutcome synchronize(const py::object& serve, std::uint64_t until) {
    raise(vector_->check());
    const auto answer = [this, &serve] { answer_joiners(serve); };
    answer();
    return value_or_raise(
        call([session = session_,
              until] { return until == 0 ? session->synchronize() : session->synchronize_until(RoundId(until)); },
             answer));
  }
  std::tuple<std::string, std::string, std::uint64_t> ask_optimizer() {
    OptimizerOffer offer = value_or_raise(call([session = session_] { return session->ask_optimizer(); }));
    return {std::move(offer.source), std::move(offer.description), offer.bytes};
  }
  at::Tensor take_optimizer() {
    const BufferPtr taken = value_or_raise(call([session = session_] { return session->take_optimizer(); }));
    const std::span<std::byte> bytes = taken->bytes();
    return at::from_blob(
        bytes.data(), {static_cast<int64_t>(bytes.size())}, [taken](void*) {}, at::TensorOptions(at::kByte));
  }
  void end_optimizer(const std::string& cold) {
    const py::gil_scoped_release released;
    session_->end_optimizer(cold);
  }
  void broadcast(const at::Tensor& bytes) {
    raise(check_bytes(bytes));
    raise(call([session = session_, bytes] { return session->broadcast(bytes_of(bytes)); }));
  }
  void finish(std::uint32_t next_generation) {
    raise(vector_->check());
    raise(call([session = session_, next_generation] { return session->finish(next_generation); }));
  }
  void replace_tensor(std::size_t position, at::Tensor tensor) { raise(vector_->replace(position, std::move(tensor))); }
  [[nodiscard]] std::uint64_t settles_at() const { return session_->settles_at().value; }
  void note_loss(double loss) { session_->note_loss(loss); }
  void ask_to_leave() { session_->ask_to_leave(); }
  void keep_out() { session_->keep_out(); }
  // Any thread of the script may call this. Changes of the session happen under the interpreter's lock or inside
  // call().
  [[nodiscard]] SessionStatus status() const { return calls_.idle() ? session_->status() : before_call_; }

 private:
  // Runs on the script's thread, where no optimizer is in the middle of a step.
  void answer_joiners(const py::object& serve) {
    if (serve.is_none() || !session_->optimizer_wanted()) return;
    Result<OptimizerCopy> copy = copy_from(serve());
    const py::gil_scoped_release released;
    session_->give_optimizer(std::move(copy));
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<TensorVector> vector_;  // used by the session during its calls, by this thread between them
  bool at_once_;
  SessionStatus before_call_;
  Interruptible calls_;
};

std::unique_ptr<PySession> new_session(const PyConfig& config, const std::string& site, const std::string& job,
                                       const std::string& record_dir, const std::string& record_scope,
                                       std::uint32_t generation, std::uint64_t egress_spent, std::uint32_t site_rank,
                                       std::uint32_t site_size, bool one_host, std::vector<std::string> coordinators,
                                       const std::vector<ModelRow>& model, std::vector<at::Tensor> parameters,
                                       std::uint64_t compared_elements, std::optional<BackendPtr> site_group,
                                       const std::optional<py::dict>& transport, bool resumed, std::uint64_t world) {
  SessionOptions options;
  options.config = config.loaded.config;
  options.run_of_rendezvous = std::ranges::any_of(config.loaded.values, [](const KnobValue& value) {
    return value.knob->name == "run" && value.source == kFromRendezvous;
  });
  options.site = site;
  options.job = job;
  options.record.dir = record_dir;
  options.record.scope = record_scope;
  options.generation = generation;
  options.egress_spent = egress_spent;
  options.layout.rank = site_rank;
  options.layout.size = site_size;
  options.layout.one_host = one_host;
  options.coordinators = std::move(coordinators);
  options.model = model_from(model);
  options.compared_elements = compared_elements;
  options.serves_optimizer = true;
  options.resumed = resumed;
  options.world = world;
  if (transport) options.make_transport = transport_factory(*transport);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : options.model) {
    if (tensor.kind == TensorKind::kAveraged) names.push_back(tensor.name);
  }
  std::shared_ptr<TensorVector> vector = value_or_raise(TensorVector::make(std::move(parameters), std::move(names)));
  auto group = std::make_shared<BackendSiteGroup>(site_group ? std::move(*site_group) : BackendPtr(),
                                                  leader_wait_limit(config.loaded.config));
  Result<std::unique_ptr<Session>> session = [&] {
    const py::gil_scoped_release released;
    return make_session(std::move(options), vector, std::move(group));
  }();
  return std::make_unique<PySession>(without_lock(value_or_raise(std::move(session))), std::move(vector),
                                     one_host || site_size == 1);
}

class PyCoordinator {
 public:
  explicit PyCoordinator(std::shared_ptr<CoordinatorServer> server) : server_(std::move(server)) {}
  [[nodiscard]] std::string address() const { return server()->address(); }
  void wait_until_empty(std::chrono::microseconds limit) {
    raise(calls_.call([server = server(), limit] { return server->wait_until_empty(Duration(limit)); }));
  }
  // Releases the server, which stops once no call uses it.
  void close() { const std::shared_ptr<CoordinatorServer> last = std::move(server_); }
  [[nodiscard]] const std::shared_ptr<CoordinatorServer>& server() const {
    if (!server_) throw std::runtime_error("collab: the coordinator was closed [coordinator.closed]");
    return server_;
  }

 private:
  std::shared_ptr<CoordinatorServer> server_;
  Interruptible calls_;
};

// The caller closes a page before its coordinator.
class PyPage {
 public:
  explicit PyPage(std::shared_ptr<Page> page) : page_(std::move(page)), announcement_(page_->announcement()) {}
  [[nodiscard]] const std::string& announcement() const { return announcement_; }
  void close() {
    const py::gil_scoped_release released;
    const std::shared_ptr<Page> last = std::move(page_);
  }

 private:
  std::shared_ptr<Page> page_;
  std::string announcement_;
};

std::unique_ptr<PyPage> new_page(const PyConfig& config, const PyCoordinator& coordinator, const std::string& dialled,
                                 PageOptions options) {
  Result<std::unique_ptr<Page>> page = [&] {
    const py::gil_scoped_release released;
    return serve_page(options, config.loaded, coordinator.server(), dialled);
  }();
  return std::make_unique<PyPage>(without_lock(value_or_raise(std::move(page))));
}

std::unique_ptr<PyCoordinator> new_coordinator(const PyConfig& config, const py::dict& transport,
                                               const std::string& listen) {
  const TransportFactory factory = transport_factory(transport);
  Result<std::unique_ptr<CoordinatorServer>> server = [&] {
    const py::gil_scoped_release released;
    return with_transport(factory, [&](TransportPtr made) {
      allow_more_open_files();
      return serve_coordinator(config.loaded.config, std::move(made), listen);
    });
  }();
  return std::make_unique<PyCoordinator>(without_lock(value_or_raise(std::move(server))));
}

class PyHelper {
 public:
  explicit PyHelper(std::shared_ptr<HelperServer> server) : server_(std::move(server)) {}
  // False: the helper still runs after `limit`.
  bool wait(std::chrono::microseconds limit) {
    const Status status = calls_.call([server = server_, limit] { return server->wait(Duration(limit)); });
    if (status.code() == StatusCode::kTimeout) return false;
    raise(status);
    return true;
  }
  void leave() {
    const py::gil_scoped_release released;
    server_->leave();
  }

 private:
  std::shared_ptr<HelperServer> server_;
  Interruptible calls_;
};

std::unique_ptr<PyHelper> new_helper(const PyConfig& config, const std::string& site, const py::dict& transport) {
  const Config& knobs = config.loaded.config;
  HelperOptions options{knobs, site, knobs.coordinator, transport_factory(transport)};
  Result<std::unique_ptr<HelperServer>> server = [&] {
    const py::gil_scoped_release released;
    return serve_helper(std::move(options));
  }();
  return std::make_unique<PyHelper>(without_lock(value_or_raise(std::move(server))));
}

std::string ask_status(const py::dict& transport, const std::string& address, std::chrono::microseconds limit) {
  Interruptible calls;
  return value_or_raise(calls.call([factory = transport_factory(transport), address, limit] {
    return with_transport(factory,
                          [&](TransportPtr made) { return query_status(std::move(made), address, Duration(limit)); });
  }));
}

std::string say_forget(const py::dict& transport, const std::string& address, const std::vector<std::string>& sites,
                       std::chrono::microseconds limit) {
  Interruptible calls;
  return value_or_raise(calls.call([factory = transport_factory(transport), address, sites, limit] {
    return with_transport(
        factory, [&](TransportPtr made) { return tell_forget(std::move(made), address, sites, Duration(limit)); });
  }));
}

py::dict measured(const py::dict& transport, const std::string& address, std::chrono::microseconds time,
                  const std::string& listen) {
  Interruptible calls;
  const LineFigures figures =
      value_or_raise(calls.call([factory = transport_factory(transport), address, time, listen] {
        return with_transport(
            factory, [&](TransportPtr made) { return measure_line(std::move(made), address, Duration(time), listen); });
      }));
  py::dict told;
  told["round_trip_ms"] = figures.round_trip_ms;
  told["mbit_up"] = figures.mbit_up;
  told["mbit_down"] = figures.mbit_down;
  told["own_address"] = figures.own_address;
  told["not_dialled"] = figures.not_dialled;
  return told;
}

std::shared_ptr<LineAnswerer> new_line_answerer(const py::dict& transport, const std::string& listen) {
  const TransportFactory factory = transport_factory(transport);
  Result<std::unique_ptr<LineAnswerer>> answerer = [&] {
    const py::gil_scoped_release released;
    return with_transport(factory, [&](TransportPtr made) { return answer_line(std::move(made), listen); });
  }();
  return without_lock(value_or_raise(std::move(answerer)));
}

void bind_sessions(py::module_& module) {
  py::class_<StepOutcome>(module, "StepOutcome")
      .def_readonly("took_anchor", &StepOutcome::took_anchor)
      .def_readonly("leaving", &StepOutcome::leaving);
  py::class_<SessionStatus>(module, "SessionStatus")
      .def_readonly("site", &SessionStatus::site)
      .def_readonly("generation", &SessionStatus::generation)
      .def_property_readonly("round", [](const SessionStatus& s) { return s.round.value; })
      .def_readonly("steps", &SessionStatus::steps)
      .def_readonly("steps_since_round", &SessionStatus::steps_since_round)
      .def_readonly("bytes_sent", &SessionStatus::bytes_sent)
      .def_readonly("bytes_received", &SessionStatus::bytes_received)
      .def_readonly("egress_spent", &SessionStatus::egress_spent)
      .def_property_readonly("state", [](const SessionStatus& s) { return to_hex(s.state); });
  py::class_<PySession>(module, "Session")
      .def("begin", &PySession::begin)
      .def("count_step", &PySession::count_step, py::arg("samples"), py::arg("serve") = py::none())
      .def("synchronize", &PySession::synchronize, py::arg("serve") = py::none(), py::arg("until") = 0)
      .def("settles_at", &PySession::settles_at)
      .def("ask_optimizer", &PySession::ask_optimizer)
      .def("take_optimizer", &PySession::take_optimizer)
      .def("end_optimizer", &PySession::end_optimizer, py::arg("cold"))
      .def("broadcast", &PySession::broadcast, py::arg("bytes"))
      .def("note_loss", &PySession::note_loss, py::arg("loss"))
      .def("ask_to_leave", &PySession::ask_to_leave)
      .def("keep_out", &PySession::keep_out)
      .def("replace_tensor", &PySession::replace_tensor, py::arg("position"), py::arg("tensor"))
      .def("finish", &PySession::finish, py::arg("next_generation") = 0)
      .def("status", &PySession::status);
  module.def("make_session", &new_session, py::kw_only(), py::arg("config"), py::arg("site"), py::arg("job"),
             py::arg("record_dir") = "", py::arg("record_scope") = "", py::arg("generation") = 1,
             py::arg("egress_spent") = 0, py::arg("site_rank"), py::arg("site_size"), py::arg("one_host"),
             py::arg("coordinators"), py::arg("model"), py::arg("parameters"),
             py::arg("compared_elements") = UINT64_MAX, py::arg("site_group") = py::none(),
             py::arg("transport") = py::none(), py::arg("resumed") = false, py::arg("world") = 0);
}

void bind_coordinator(py::module_& module) {
  py::class_<PyCoordinator>(module, "CoordinatorServer")
      .def_property_readonly("address", &PyCoordinator::address)
      .def("wait_until_empty", &PyCoordinator::wait_until_empty, py::arg("limit"))
      .def("close", &PyCoordinator::close);
  module.def("serve_coordinator", &new_coordinator, py::arg("config"), py::arg("transport"), py::arg("listen"));
  py::class_<PyPage>(module, "Page")
      .def_property_readonly("announcement", &PyPage::announcement)
      .def("close", &PyPage::close);
  module.def(
      "serve_page",
      [](const PyConfig& config, const PyCoordinator& coordinator, const std::string& dialled, const std::string& http,
         bool insecure, const std::string& certificate, const std::string& key, const std::string& objective,
         const std::string& leaderboard, const std::string& join) {
        return new_page(config, coordinator, dialled, {http, insecure, certificate, key, objective, leaderboard, join});
      },
      py::arg("config"), py::arg("coordinator"), py::arg("dialled"), py::kw_only(), py::arg("http"),
      py::arg("insecure") = false, py::arg("certificate") = "", py::arg("key") = "", py::arg("objective") = "",
      py::arg("leaderboard") = "", py::arg("join") = "");
}

void bind_helper(py::module_& module) {
  py::class_<PyHelper>(module, "HelperServer")
      .def("wait", &PyHelper::wait, py::arg("limit"))
      .def("leave", &PyHelper::leave);
  module.def("serve_helper", &new_helper, py::arg("config"), py::arg("site"), py::arg("transport"));
}

void bind_termination(py::module_& module) {
  module.def(
      "watch_for_termination",
      [](std::chrono::microseconds limit) {
        return watch_for_termination(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
      },
      py::arg("limit"));
  module.def("termination_requested", &termination_requested);
  module.def("end_by_parent_only", &end_by_parent_only);
  module.def("termination_signal", &termination_signal);
  module.def("carry_out_termination", &carry_out_termination, py::call_guard<py::gil_scoped_release>());
}

void bind_questions(py::module_& module) {
  module.def("query_status", &ask_status, py::arg("transport"), py::arg("address"), py::arg("limit"));
  module.def("tell_forget", &say_forget, py::arg("transport"), py::arg("address"), py::arg("sites"), py::arg("limit"));
  module.def("measure_line", &measured, py::arg("transport"), py::arg("address"), py::arg("time"), py::arg("listen"));
  py::class_<LineAnswerer, std::shared_ptr<LineAnswerer>>(module, "LineAnswerer")
      .def_property_readonly("address", &LineAnswerer::address);
  module.def("answer_line", &new_line_answerer, py::arg("transport"), py::arg("listen"));
}

}  // namespace

void bind_session(py::module_& module) {
  bind_sessions(module);
  bind_coordinator(module);
  bind_helper(module);
  bind_termination(module);
  bind_questions(module);
}

}  // namespace collab::torch_adapter
