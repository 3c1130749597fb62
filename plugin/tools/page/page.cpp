#include "tools/page/page.h"

#include <chrono>
#include <optional>
#include <utility>

#include "core/base/address.h"
#include "core/base/log.h"
#include "core/base/rate_limit.h"
#include "core/base/text.h"
#include "tools/page/answers.h"
#include "tools/page/contents.h"
#include "tools/page/leaderboard.h"
#include "tools/page/password.h"
#include "tools/page/server.h"

namespace collab {
namespace {

constexpr std::size_t kLongestObjective = 1000;

// Refuses options that would expose the page to other machines without protection.
Status check_reach(const PageOptions& options, bool tls, bool loopback, bool open) {
  if (tls && options.insecure) {
    return invalid_argument(
        "--http-cert and --http-insecure are both given, but the page is either encrypted or not; leave one out "
        "[page.both]");
  }
  if (loopback) return {};
  if (!tls && !options.insecure) {
    return invalid_argument(
        "--http " + options.http +
        ": other machines could reach the page there, in the clear: give it a certificate with --http-cert FILE and "
        "--http-key FILE, or listen at 127.0.0.1 and use `ssh -L 8080:127.0.0.1:PORT` or a reverse proxy with TLS, or "
        "give --http-insecure [page.in-the-clear]");
  }
  if (tls && open) {
    log_warning(
        "the page has no password, because there is no token: anyone who can reach it can read it "
        "[page.no-password]");
  }
  if (!tls) {
    log_warning(std::string("the page is served in the clear to other machines (--http-insecure): ") +
                (open ? "there is no token, so anyone who can reach it can read it"
                      : "anyone who listens on the way can read it, and its password") +
                " [page.open]");
  }
  return {};
}

class ServedPage final : public Page {
 public:
  ServedPage(LoadedConfig config, page::Leaderboard board, page::Constants constants,
             std::shared_ptr<const CoordinatorServer> coordinator)
      : config_(std::move(config)),
        board_(std::move(board)),
        constants_(std::move(constants)),
        coordinator_(std::move(coordinator)) {}

  Status start(const PageOptions& options, std::vector<std::string> passwords) {
    const Result<HostPort> asked = parse_host_port(options.http);
    if (!asked.ok()) return invalid_argument("--http: " + asked.status().message());
    const bool tls = !options.certificate.empty() || !options.key.empty();
    if (tls) COLLAB_RETURN_IF_ERROR(server_.use_tls(options.certificate, options.key));
    const Result<HostPort> bound = server_.listen(*asked);
    if (!bound.ok()) return bound.status();
    const bool loopback = server_.is_loopback();
    COLLAB_RETURN_IF_ERROR(check_reach(options, tls, loopback, passwords.empty()));
    const bool anywhere = asked->host == "0.0.0.0" || asked->host == "::";
    announcement_ =
        (tls ? "page at https://" : "page at http://") +
        (anywhere ? "HOST:" + std::to_string(bound->port) : to_string(*bound)) + "/" +
        // A space after the address, so that a terminal opens only the address.
        (passwords.empty() ? " (without a password: there is no token)"
                           : " (any user name, and the password that `collab token --page-password` prints)");
    answers_.emplace(page::Answers::Options{std::move(passwords), loopback}, [this] { return look(); });
    server_.start([this](const page::Request& request) { return answers_->answer(clock_.now(), request); },
                  [this] {
                    read_passwords();
                    save();
                  });
    return {};
  }

  [[nodiscard]] std::string announcement() const override { return announcement_; }

 private:
  [[nodiscard]] Result<page::Texts> look() {
    const Result<CoordinatorReport> report = coordinator_->report();
    if (!report.ok()) return report.status();
    const std::vector<Contributed>& board = board_.with(report->status.contributed);
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    return page::Texts{page::status_text(constants_, *report, board, now.count()), page::metrics_text(*report, board)};
  }

  // The token file may change while a token is replaced. The transport reports an unusable file.
  void read_passwords() {
    Result<std::vector<std::string>> passwords = page::passwords_of(config_);
    if (passwords.ok()) answers_->take(std::move(*passwords));
  }

  void save() {
    if (!board_.is_kept()) return;
    const Result<CoordinatorReport> report = coordinator_->report();
    if (!report.ok()) return;
    static_cast<void>(board_.with(report->status.contributed));
    const Status saved = board_.save();
    if (saved.ok()) return;
    if (const auto line = not_saved_.allow(clock_.now(), saved.message())) log_warning(*line);
  }

  SteadyClock clock_;
  const LoadedConfig config_;
  page::Leaderboard board_;
  const page::Constants constants_;
  const std::shared_ptr<const CoordinatorServer> coordinator_;
  RateLimit not_saved_{std::chrono::minutes(1)};
  std::string announcement_;
  std::optional<page::Answers> answers_;
  page::Server server_{clock_};  // the last member: its thread uses the others
};

page::Key key_of(const Config& config, const std::vector<std::string>& passwords) {
  if (!passwords.empty()) return page::Key::kToken;
  return config.tls_cert.empty() ? page::Key::kNone : page::Key::kCertificates;
}

}  // namespace

Result<std::unique_ptr<Page>> serve_page(const PageOptions& options, const LoadedConfig& config,
                                         std::shared_ptr<const CoordinatorServer> server,
                                         const std::string& coordinator) {
  if (options.objective.size() > kLongestObjective || !is_valid_utf8(options.objective)) {
    return invalid_argument("--objective: expected at most " + std::to_string(kLongestObjective) +
                            " bytes of UTF-8 [page.objective]");
  }
  Result<std::vector<std::string>> passwords = page::passwords_of(config);
  if (!passwords.ok()) return passwords.status();
  Result<page::Leaderboard> board = page::Leaderboard::open(options.leaderboard);
  if (!board.ok()) return board.status();
  page::Constants constants{options.objective, options.join};
  if (constants.join.empty()) {
    constants.join = page::join_command(coordinator, config.config.run, key_of(config.config, *passwords));
  }
  auto served = std::make_unique<ServedPage>(config, std::move(*board), std::move(constants), std::move(server));
  COLLAB_RETURN_IF_ERROR(served->start(options, std::move(*passwords)));
  return std::unique_ptr<Page>(std::move(served));
}

}  // namespace collab
