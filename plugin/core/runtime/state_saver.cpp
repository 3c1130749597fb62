#include "core/runtime/state_saver.h"

#include <utility>

#include "core/base/digest.h"
#include "core/base/log.h"

namespace collab {

void StateSaver::save(StateHeader header, std::span<const float> anchor, std::span<const float> outer,
                      std::span<const float> residual) {
  wait();
  thread_ = std::thread([path = path_, header = std::move(header), anchor, outer, residual]() mutable {
    for (ResidualRecord& record : header.residual) record.digest = digest_of_vector(residual);
    if (const Status status = write_state(path, header, anchor, outer, residual); !status.ok()) {
      log_error("the state of round " + std::to_string(header.round.value) + " was not saved: " + status.message());
    }
  });
}

void StateSaver::wait() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace collab
