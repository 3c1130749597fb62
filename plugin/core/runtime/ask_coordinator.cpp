#include "core/runtime/ask_coordinator.h"

#include <future>
#include <mutex>
#include <utility>

#include "collab/session.h"
#include "core/protocol/formatting.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// Sends one message and waits for its answer. Threads: the transport's, and the caller's in ask().
template <typename Answer>
class Asker final : public TransportHandler {
 public:
  explicit Asker(wire::Message question) : question_(std::move(question)) {}

  void on_accepted(LinkId, const std::string&) override {}
  void on_connected(LinkId link) override {
    transport_->send(link, {.lane = Lane::kControl, .head = wire::encode(question_), .payload = nullptr}, 0);
  }
  void on_message(LinkId, TransportMessage message) override {
    Result<wire::Message> decoded = wire::decode(message.head);
    if (!decoded.ok()) return answer(decoded.status());
    if (auto* expected = std::get_if<Answer>(&*decoded)) answer(std::move(*expected));
  }
  void on_sent(LinkId, std::uint64_t) override {}
  void on_closed(LinkId, Status why) override {
    answer(unavailable("no coordinator answers: " + (why.ok() ? "the link was closed" : why.message()) +
                       " [cli.link-closed]"));
  }

  Result<Answer> ask(Transport& transport, const std::string& address, Duration limit) {
    transport_ = &transport;
    COLLAB_RETURN_IF_ERROR(transport.start(this));
    std::future<Result<Answer>> future = promise_.get_future();
    (void)transport.connect(address, limit);
    if (future.wait_for(limit) != std::future_status::ready) {
      answer(cancelled("given up [cli.given-up]"));  // a later answer is ignored
      return timed_out("no coordinator answered at " + address + " within " +
                       std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
                       " s [cli.no-answer]");
    }
    return future.get();
  }

 private:
  void answer(Result<Answer> with) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, true)) return;
    promise_.set_value(std::move(with));
  }

  const wire::Message question_;
  Transport* transport_ = nullptr;
  std::mutex mutex_;
  bool answered_ = false;  // guarded by mutex_
  std::promise<Result<Answer>> promise_;
};

template <typename Answer>
Result<Answer> ask(wire::Message question, std::unique_ptr<Transport> transport, const std::string& address,
                   Duration limit) {
  Asker<Answer> asker(std::move(question));
  Result<Answer> answer = asker.ask(*transport, address, limit);
  transport.reset();  // before the handler is destroyed
  return answer;
}

}  // namespace

Result<wire::StatusReport> ask_coordinator(std::unique_ptr<Transport> transport, const std::string& address,
                                           Duration limit) {
  return ask<wire::StatusReport>(wire::StatusQuery{}, std::move(transport), address, limit);
}

Result<std::string> query_status(std::unique_ptr<Transport> transport, const std::string& address, Duration limit) {
  Result<wire::StatusReport> answer = ask_coordinator(std::move(transport), address, limit);
  if (!answer.ok()) return answer.status();
  return std::move(answer->json);
}

Result<std::string> tell_forget(std::unique_ptr<Transport> transport, const std::string& address,
                                const std::vector<std::string>& sites, Duration limit) {
  Result<wire::Notice> answer = ask<wire::Notice>(wire::Forget{sites}, std::move(transport), address, limit);
  if (!answer.ok()) return answer.status();
  if (answer->event != protocol::kForget) return refused(answer->text);
  return std::move(answer->text);
}

}  // namespace collab
