#include "torch/tensor_vector.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "torch/device.h"
#include "torch/torch_private.h"

namespace collab::torch_adapter {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

// The rows of dimension 0 that hold the logical elements [begin, end), and the index of their first element.
struct Rows {
  at::Tensor tensor;
  int64_t first = 0;
};
Rows rows_around(const at::Tensor& tensor, int64_t begin, int64_t end) {
  if (tensor.is_contiguous()) return {tensor.view(-1).narrow(0, begin, end - begin), begin};
  const int64_t row = tensor.numel() / tensor.size(0);
  const int64_t first = begin / row;
  const int64_t last = (end + row - 1) / row;
  return {tensor.narrow(0, first, last - first), first * row};
}

at::Tensor wrap(const float* memory, int64_t count) {
  return at::from_blob(const_cast<float*>(memory), {count}, at::kFloat);
}

// The elements in their own type: a view if they are contiguous, otherwise a copy.
at::Tensor flat(const Rows& rows, int64_t begin, int64_t count) {
  return rows.tensor.reshape(-1).narrow(0, begin - rows.first, count);
}

void write_rows(const Rows& rows, int64_t begin, const at::Tensor& values) {
  const at::Tensor& tensor = rows.tensor;
  if (tensor.numel() == values.numel()) {
    tensor.copy_(values.view(tensor.sizes()));
    return;
  }
  const at::Tensor flat = tensor.reshape(-1);  // a copy: the rows are not contiguous
  flat.narrow(0, begin - rows.first, values.numel()).copy_(values);
  tensor.copy_(flat.view(tensor.sizes()));
}

// Calls hand(values, begin in the tensor) for parts small enough for the stage.
template <typename Hand>
void in_parts(int64_t begin, std::span<const float> values, const Hand& hand) {
  for (std::size_t at = 0; at < values.size(); at += DeviceStage::kMost) {
    hand(values.subspan(at, std::min<std::size_t>(DeviceStage::kMost, values.size() - at)),
         begin + static_cast<int64_t>(at));
  }
}

// Sets the tensor's elements to change(elements as float32, values), on its device.
template <typename Change>
void change_there(const at::Tensor& tensor, int64_t begin, const at::Tensor& values, const Change& change) {
  const Rows rows = rows_around(tensor, begin, begin + values.numel());
  const at::Tensor now = flat(rows, begin, values.numel()).to(at::kFloat);
  change(now, values);
  const bool in_place = tensor.is_contiguous() && tensor.scalar_type() == at::kFloat;
  if (!in_place) write_rows(rows, begin, now);
}

void read_piece(DeviceStage& stage, const at::Tensor& tensor, int64_t begin, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (is_plain(tensor)) {
    std::memcpy(out.data(), tensor.const_data_ptr<float>() + begin, out.size_bytes());
  } else if (tensor.device().is_cpu()) {
    wrap(out.data(), count).copy_(flat(rows_around(tensor, begin, begin + count), begin, count));
  } else {
    in_parts(begin, out, [&](std::span<const float> part, int64_t at) {
      const auto n = static_cast<int64_t>(part.size());
      const std::span<float> to = out.subspan(static_cast<std::size_t>(at - begin), part.size());
      stage.fetch(flat(rows_around(tensor, at, at + n), at, n).to(at::kFloat), to);
    });
  }
}

void write_piece(DeviceStage& stage, const at::Tensor& tensor, int64_t begin, std::span<const float> in) {
  const auto count = static_cast<int64_t>(in.size());
  if (is_plain(tensor)) {
    std::memcpy(tensor.mutable_data_ptr<float>() + begin, in.data(), in.size_bytes());
  } else if (tensor.device().is_cpu()) {
    write_rows(rows_around(tensor, begin, begin + count), begin, wrap(in.data(), count));
  } else {
    in_parts(begin, in, [&](std::span<const float> part, int64_t at) {
      const Rows rows = rows_around(tensor, at, at + static_cast<int64_t>(part.size()));
      write_rows(rows, at, stage.send(part, tensor.device()));
    });
  }
}

bool piece_holds(DeviceStage& stage, const at::Tensor& tensor, int64_t begin, std::span<const float> values) {
  if (is_plain(tensor)) {
    return std::memcmp(tensor.const_data_ptr<float>() + begin, values.data(), values.size_bytes()) == 0;
  }
  bool same = true;
  in_parts(begin, values, [&](std::span<const float> part, int64_t at) {
    const auto n = static_cast<int64_t>(part.size());
    const at::Device device = tensor.device();
    const at::Tensor given = device.is_cpu() ? wrap(part.data(), n) : stage.send(part, device);
    same = same && at::equal(flat(rows_around(tensor, at, at + n), at, n), given.to(tensor.options()));
  });
  return same;
}

}  // namespace

Result<std::shared_ptr<TensorVector>> TensorVector::make(std::vector<at::Tensor> tensors,
                                                         std::vector<std::string> names) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined() || tensor.layout() != at::kStrided || !at::isFloatingType(tensor.scalar_type())) {
      return invalid_argument("tensor " + std::to_string(i) + " of the model is " +
                              (tensor.defined() ? tensor.toString() : std::string("undefined")) +
                              "; sites exchange dense floating tensors only [capture.not-dense]");
    }
  }
  if (!names.empty() && names.size() != tensors.size()) {
    return invalid_argument("expected a name for each of " + std::to_string(tensors.size()) + " tensors, got " +
                            std::to_string(names.size()) + " [capture.names]");
  }
  return std::shared_ptr<TensorVector>(new TensorVector(std::move(tensors), std::move(names)));
}

TensorVector::TensorVector(std::vector<at::Tensor> tensors, std::vector<std::string> names)
    : tensors_(std::move(tensors)), names_(std::move(names)) {
  std::uint64_t end = 0;
  for (const at::Tensor& tensor : tensors_) {
    end += static_cast<std::uint64_t>(tensor.numel());
    ends_.push_back(end);
    seen_.push_back({tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec()});
  }
}

std::string TensorVector::name_of(std::size_t position) const {
  return names_.empty() ? "tensor " + std::to_string(position) + " of the model" : names_[position];
}

Status TensorVector::check_kind(std::size_t position, const at::Tensor& tensor) const {
  const Seen& seen = seen_[position];
  if (tensor.layout() == at::kStrided && tensor.scalar_type() == seen.type && tensor.sizes() == seen.shape) return {};
  const auto describe = [](at::ScalarType type, at::IntArrayRef shape) {
    return std::string(at::toString(type)) + " " + c10::str(shape);
  };
  return invalid_argument(
      name_of(position) + " was " + describe(seen.type, seen.shape) + " when sites agreed on the model and is " +
      (tensor.layout() == at::kStrided ? describe(tensor.scalar_type(), tensor.sizes()) : tensor.toString()) +
      " now, so sites can no longer average it. Change the model before you wrap it in DistributedDataParallel, or "
      "wrap the changed model in a new one [capture.tensor-changed]");
}

Status TensorVector::check() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    const bool strided = tensor.layout() == at::kStrided;
    const void* storage = strided ? tensor.const_data_ptr() : nullptr;
    const bool same = strided && storage == seen_[i].storage && tensor.scalar_type() == seen_[i].type &&
                      tensor.sizes() == seen_[i].shape;
    if (same) continue;
    COLLAB_RETURN_IF_ERROR(check_kind(i, tensor));
    seen_[i].storage = storage;
  }
  return {};
}

Status TensorVector::replace(std::size_t position, at::Tensor tensor) {
  if (position >= tensors_.size() || !tensor.defined()) {
    return invalid_argument("there is no tensor " + std::to_string(position) + " in a model of " +
                            std::to_string(tensors_.size()) + " [capture.no-such-tensor]");
  }
  COLLAB_RETURN_IF_ERROR(check_kind(position, tensor));
  seen_[position].storage = tensor.const_data_ptr();
  tensors_[position] = std::move(tensor);
  return {};
}

std::span<float> TensorVector::view(std::uint64_t offset, std::uint64_t count) {
  const auto at = std::upper_bound(ends_.begin(), ends_.end(), offset);
  if (at == ends_.end() || count > *at - offset) return {};
  const at::Tensor& tensor = tensors_[static_cast<std::size_t>(at - ends_.begin())];
  if (!is_plain(tensor)) return {};
  const std::uint64_t begin = *at - static_cast<std::uint64_t>(tensor.numel());
  return {tensor.mutable_data_ptr<float>() + (offset - begin), static_cast<std::size_t>(count)};
}

template <typename Piece>
Status TensorVector::for_pieces(const char* what, std::uint64_t offset, std::uint64_t count, const Piece& piece) {
  if (offset > size() || count > size() - offset) {
    return invalid_argument(std::string("cannot ") + what + " elements " + std::to_string(offset) + " to " +
                            std::to_string(offset + count) + " of a model of " + std::to_string(size()) +
                            " [capture.range]");
  }
  try {
    const at::AutoDispatchBelowADInplaceOrView unrecorded;
    std::uint64_t done = 0;
    at::Device settled = at::kCPU;
    auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    for (; done < count; ++at) {
      const std::uint64_t here = offset + done;
      const std::uint64_t begin = ends_[at] - static_cast<std::uint64_t>(tensors_[at].numel());
      const std::uint64_t n = std::min(count - done, ends_[at] - here);
      if (n > 0) {
        // Copies wait only for their own stream, but the script may have run its optimizer on another one.
        const at::Device device = tensors_[at].device();
        if (std::exchange(settled, device) != device) wait_for_device(device);
        piece(tensors_[at], static_cast<int64_t>(here - begin), static_cast<std::size_t>(n),
              static_cast<std::size_t>(done));
      }
      done += n;
    }
    stage_.finish();  // as the script may use other streams
    return {};
  } catch (const c10::Error& e) {
    stage_.drop();
    return internal_error(std::string("cannot ") + what + " the model's tensors: " + e.what_without_backtrace() +
                          " [capture.copy]");
  } catch (const std::exception& e) {
    stage_.drop();
    return internal_error(std::string("cannot ") + what + " the model's tensors: " + e.what() + " [capture.copy]");
  }
}

Status TensorVector::read(std::uint64_t offset, std::span<float> out) {
  return for_pieces("read", offset, out.size(),
                    [&](const at::Tensor& tensor, int64_t begin, std::size_t n, std::size_t done) {
                      read_piece(stage_, tensor, begin, out.subspan(done, n));
                    });
}

Status TensorVector::write(std::uint64_t offset, std::span<const float> in) {
  return for_pieces("write", offset, in.size(),
                    [&](const at::Tensor& tensor, int64_t begin, std::size_t n, std::size_t done) {
                      write_piece(stage_, tensor, begin, in.subspan(done, n));
                    });
}

Result<bool> TensorVector::holds(std::uint64_t offset, std::span<const float> values) {
  bool same = true;
  const Status status = for_pieces("compare", offset, values.size(),
                                   [&](const at::Tensor& tensor, int64_t begin, std::size_t n, std::size_t done) {
                                     same = same && piece_holds(stage_, tensor, begin, values.subspan(done, n));
                                   });
  if (!status.ok()) return status;
  return same;
}

template <typename There, typename Here>
Status TensorVector::change(std::uint64_t offset, std::span<const float> values, const There& there, const Here& here) {
  Status on_host;
  const Status status = for_pieces("change", offset, values.size(),
                                   [&](const at::Tensor& tensor, int64_t begin, std::size_t n, std::size_t done) {
                                     const std::span<const float> piece = values.subspan(done, n);
                                     if (tensor.device().is_cpu()) {
                                       if (on_host.ok()) on_host = here(offset + done, piece);
                                       return;
                                     }
                                     in_parts(begin, piece, [&](std::span<const float> part, int64_t at) {
                                       change_there(tensor, at, stage_.send(part, tensor.device()), there);
                                     });
                                   });
  return status.ok() ? on_host : status;
}

// On a device each operation is rounded separately, as on the host, so the bits are the same.
Status TensorVector::add(std::uint64_t offset, std::span<const float> values) {
  return change(
      offset, values, [](const at::Tensor& now, const at::Tensor& by) { now.add_(by); },
      [this](std::uint64_t at, std::span<const float> part) { return ParameterVector::add(at, part); });
}

Status TensorVector::mix(std::uint64_t offset, std::span<const float> values, float kept) {
  return change(
      offset, values,
      [kept](const at::Tensor& now, const at::Tensor& other) { now.mul_(kept).add_(other.mul_(1.0F - kept)); },
      [&](std::uint64_t at, std::span<const float> part) { return ParameterVector::mix(at, part, kept); });
}

at::Device TensorVector::farthest() const {
  const auto far = std::ranges::find_if(tensors_, [](const at::Tensor& tensor) { return !tensor.device().is_cpu(); });
  return far == tensors_.end() ? at::kCPU : far->device();
}

std::uint64_t TensorVector::tile() const {
  return farthest().is_cpu() ? ParameterVector::tile() : static_cast<std::uint64_t>(DeviceStage::kMost);
}

std::shared_ptr<void> TensorVector::pin_memory(std::span<const float> memory) {
  const at::Device device = farthest();
  return device.is_cpu() ? nullptr : stage_.pin_memory(memory, device);
}

}  // namespace collab::torch_adapter
