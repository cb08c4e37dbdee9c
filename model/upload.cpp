#include "model/upload.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "model/convert.h"
#include "model/fold_norm.h"
#include "model/parallel.h"

namespace laya::model {
namespace {

// Converting takes longer than copying, up to this many threads.
constexpr int kMostThreads = 16;
// On the CPU, where each thread has room for a whole matrix.
constexpr int kHostThreads = 4;
// Of all threads together, as pinning takes 0.5 ms a MiB; what is left for each is large enough to
// be copied at full speed.
constexpr size_t kStagingBytes = size_t{4} << 20;

int thread_count(const jit::Device& device) {
  if (device.target().backend == jit::Backend::kCpu) return kHostThreads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

// A piece of an upload that one thread moves at once: elements [begin, begin + count).
struct Piece {
  const Upload* upload;
  size_t begin;
  size_t count;
};

bool is_packed(const Upload& upload) {
  return upload.matrix != nullptr && !upload.matrix->pack.variants.empty();
}

size_t interleaved_rows(const Upload& upload) {
  return upload.matrix == nullptr ? 0 : static_cast<size_t>(upload.matrix->interleaved_rows);
}

// Elements of a row, where rows are converted one by one because they change their places or have a
// norm folded in; else 0.
size_t row_elements(const Upload& upload) {
  if (interleaved_rows(upload) > 0) return static_cast<size_t>(upload.matrix->columns);
  return upload.norm_weight.size();
}

// Packing needs the whole matrix and some others whole rows; everything else is cut to the size of
// a staging buffer.
size_t most_elements(const Upload& upload, size_t staging_bytes) {
  if (is_packed(upload)) return upload.elements();
  const size_t most = staging_bytes / static_cast<size_t>(size_of(upload.to));
  const size_t row = row_elements(upload);
  return row == 0 ? most : std::max<size_t>(1, most / row) * row;
}

std::vector<Piece> cut(std::span<const Upload> uploads, size_t staging_bytes) {
  std::vector<Piece> pieces;
  for (const Upload& upload : uploads) {
    const size_t most = most_elements(upload, staging_bytes);
    for (size_t begin = 0; begin < upload.elements(); begin += most) {
      pieces.push_back({&upload, begin, std::min(most, upload.elements() - begin)});
    }
  }
  return pieces;
}

size_t staged_bytes(const Piece& piece) {
  return piece.count * static_cast<size_t>(size_of(piece.upload->to));
}

size_t largest_staged(const std::vector<Piece>& pieces) {
  size_t largest = 0;
  for (const Piece& piece : pieces) largest = std::max(largest, staged_bytes(piece));
  return largest;
}

// Which row of the checkpoint's matrix comes to row `row`.
size_t source_row(const Upload& upload, size_t row) {
  if (row >= interleaved_rows(upload)) return row;
  const size_t in_head = row % kHeadDim;
  return row - in_head + in_head % 2 * (kHeadDim / 2) + in_head / 2;
}

// Converts whole rows of a matrix to `target`. Number of an element that has no finite value in the
// upload's dtype, if there is one.
std::optional<size_t> convert_rows(const Piece& piece, std::byte* target) {
  const Upload& upload = *piece.upload;
  const size_t columns = row_elements(upload);
  std::vector<float> row(columns);
  auto* const floats = reinterpret_cast<std::byte*>(row.data());
  for (size_t done = 0; done < piece.count; done += columns) {
    const size_t from = source_row(upload, (piece.begin + done) / columns) * columns;
    convert(upload.source.data() + from * static_cast<size_t>(size_of(upload.from)), upload.from,
            floats, DType::kF32, columns);
    if (!upload.norm_weight.empty()) fold_norm_weight(row, upload.norm_weight);
    const auto bad =
        convert(floats, DType::kF32, target + done * static_cast<size_t>(size_of(upload.to)),
                upload.to, columns);
    if (bad) return from + *bad;
  }
  return std::nullopt;
}

// The same for elements that stay where they are.
std::optional<size_t> convert_flat(const Piece& piece, std::byte* target) {
  const Upload& upload = *piece.upload;
  const auto bad =
      convert(upload.source.data() + piece.begin * static_cast<size_t>(size_of(upload.from)),
              upload.from, target, upload.to, piece.count);
  if (bad) return piece.begin + *bad;
  return std::nullopt;
}

// What one thread works with.
class Lane {
 public:
  static Result<std::unique_ptr<Lane>> create(jit::Device& device, jit::Engine& engine,
                                              std::byte* storage, size_t staging_bytes) {
    std::unique_ptr<Lane> lane(new Lane(engine, storage));
    LAYA_ASSIGN(lane->staging_, device.allocate_host(staging_bytes));
    LAYA_ASSIGN(lane->stream_, device.create_stream());
    lane->is_host_ = device.target().backend == jit::Backend::kCpu;
    return lane;
  }

  Result<void> move(const Piece& piece) {
    const Upload& upload = *piece.upload;
    std::byte* target =
        storage_ + upload.offset + piece.begin * static_cast<size_t>(size_of(upload.to));
    if (is_host_ && !is_packed(upload)) return convert_piece(piece, target);
    LAYA_TRY(convert_piece(piece, staging_.as<std::byte>()));
    if (is_packed(upload)) {
      LAYA_TRY(pack(*upload.matrix, target));
    } else {
      LAYA_TRY(stream_->copy_to_device(target, staging_.data(), staged_bytes(piece)));
    }
    return stream_->synchronize();  // the staging buffer is used again next
  }

 private:
  Lane(jit::Engine& engine, std::byte* storage) : engine_(engine), storage_(storage) {}

  static Result<void> convert_piece(const Piece& piece, std::byte* target) {
    const Upload& upload = *piece.upload;
    const auto bad =
        row_elements(upload) > 0 ? convert_rows(piece, target) : convert_flat(piece, target);
    if (!bad) return {};
    return fail(ErrorKind::kBadInput, "tensor '" + upload.name + "': element " +
                                          std::to_string(*bad) + " is too large for " +
                                          to_string(upload.to) + "; choose another dtype");
  }

  Result<void> pack(const MatrixOp& matrix, std::byte* target) {
    const Variant& variant = matrix.pack.choose(matrix.pack_rows);
    LAYA_ASSIGN(const auto kernel, engine_.kernel(variant.spec));
    return kernel->launch(*stream_, variant.rule.shape(matrix.pack_rows), staging_.data(),
                          static_cast<void*>(target), static_cast<int32_t>(matrix.pack_rows),
                          static_cast<int32_t>(matrix.columns));
  }

  jit::Engine& engine_;
  std::byte* storage_;
  jit::Buffer staging_;
  std::unique_ptr<jit::Stream> stream_;
  bool is_host_ = false;
};

// The first error of several threads.
class FirstError {
 public:
  bool is_set() const { return is_set_.load(); }
  void set(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    is_set_ = true;
  }
  Result<void> result() const {
    if (error_) return tl::make_unexpected(*error_);
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> is_set_{false};
};

}  // namespace

size_t Upload::stored_bytes() const {
  const auto count = is_packed(*this) ? static_cast<size_t>(matrix->stored_elements) : elements();
  return count * static_cast<size_t>(size_of(to));
}

Result<void> upload_all(std::span<const Upload> uploads, const jit::Buffer& storage,
                        jit::Device& device, jit::Engine& engine) {
  const auto most_threads = static_cast<size_t>(thread_count(device));
  const std::vector<Piece> pieces = cut(uploads, kStagingBytes / most_threads);
  const size_t threads = std::min(most_threads, pieces.size());
  const size_t staging_bytes = largest_staged(pieces);
  std::atomic<size_t> next{0};
  FirstError error;
  parallel_for(threads, static_cast<int>(threads), [&](size_t) {
    auto lane = Lane::create(device, engine, storage.as<std::byte>(), staging_bytes);
    if (!lane) return error.set(std::move(lane).error());
    for (size_t i = next++; i < pieces.size() && !error.is_set(); i = next++) {
      if (auto moved = (*lane)->move(pieces[i]); !moved) error.set(std::move(moved).error());
    }
  });
  return error.result();
}

}  // namespace laya::model
