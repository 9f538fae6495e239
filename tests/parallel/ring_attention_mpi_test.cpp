// Ring attention on 2, 3 and 4 ranks against attention of the whole sequences by its definition in fp64, and against
// one rank that holds them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_ops.h"
#include "device/attention_reference.h"
#include "device/host_device.h"
#include "ring_batches.h"
#include "skrull/core/error.h"
#include "skrull/device/attention_operands.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/ring_attention.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;
using test::Matrix;
using test::PlannedBatch;

namespace {

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t head_dim = 16;
constexpr std::int64_t query_cols = heads * head_dim;
constexpr std::int64_t key_cols = kv_heads * head_dim;
const AttentionShape shape = {heads, kv_heads, head_dim, 0.25F};

int rank() {
  return test::mpi_session().rank();
}
int size() {
  return test::mpi_session().size();
}

/// The inputs of one sequence, the same on every rank, and what attention makes of them.
struct Sequence {
  Sequence(std::int64_t index, std::int64_t length, DType dtype)
      : length(length),
        q(random(index, 1, query_cols, dtype)),
        k(random(index, 2, key_cols, dtype)),
        v(random(index, 3, key_cols, dtype)),
        dout(random(index, 4, query_cols, dtype)) {}

  Matrix random(std::int64_t index, std::uint64_t what, std::int64_t cols, DType dtype) const {
    return Matrix::random(length, cols, dtype, static_cast<std::uint64_t>(index) * 10 + what);
  }

  std::int64_t length;
  Matrix q, k, v, dout;
};

std::vector<Sequence> sequences_of(const PlannedBatch& planned, DType dtype) {
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < planned.lengths.size(); ++i) {
    sequences.emplace_back(static_cast<std::int64_t>(i), planned.lengths[i], dtype);
  }
  return sequences;
}

/// Which token of which sequence each row of a micro-batch is.
std::vector<std::pair<std::int64_t, std::int64_t>> tokens_of(const MicroBatch& batch) {
  std::vector<std::pair<std::int64_t, std::int64_t>> tokens;
  for (const PackedSequence& sequence : batch.local) {
    for (std::int64_t t = 0; t < sequence.length; ++t) tokens.emplace_back(sequence.sample, t);
  }
  for (const Ring& ring : batch.rings) {
    for (const PackedShard& shard : ring.shards) {
      for (const TokenRange& chunk : shard.chunks) {
        for (std::int64_t t = chunk.begin; t < chunk.end; ++t) tokens.emplace_back(shard.sample, t);
      }
    }
  }
  return tokens;
}

/// Inputs and results of a rank's micro-batch. q, k and v are columns of one matrix, as in the model.
struct Packed {
  Packed(const MicroBatch& batch, const std::vector<Sequence>& sequences, DType dtype)
      : tokens(tokens_of(batch)),
        qkv(batch.tokens(), query_cols + 2 * key_cols, dtype),
        dout(batch.tokens(), query_cols, dtype),
        out(batch.tokens(), query_cols, dtype),
        lse(batch.tokens(), heads),
        dqkv(batch.tokens(), query_cols + 2 * key_cols) {
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const Sequence& sequence = sequences[static_cast<std::size_t>(tokens[row].first)];
      const auto place = static_cast<std::int64_t>(row) * qkv.cols();
      std::int64_t col = 0;
      for (const Matrix* part : {&sequence.q, &sequence.k, &sequence.v}) {
        for (std::int64_t c = 0; c < part->cols(); ++c) qkv.set(place + col++, part->at(tokens[row].second, c));
      }
      for (std::int64_t c = 0; c < query_cols; ++c) {
        dout.set(static_cast<std::int64_t>(row) * query_cols + c, sequence.dout.at(tokens[row].second, c));
      }
    }
  }

  ConstTensorView q() const { return qkv.view().slice_cols(0, query_cols); }
  ConstTensorView k() const { return qkv.view().slice_cols(query_cols, key_cols); }
  ConstTensorView v() const { return qkv.view().slice_cols(query_cols + key_cols, key_cols); }
  TensorView dq() { return dqkv.view().slice_cols(0, query_cols); }
  TensorView dk() { return dqkv.view().slice_cols(query_cols, key_cols); }
  TensorView dv() { return dqkv.view().slice_cols(query_cols + key_cols, key_cols); }

  void run(AttentionExecutor& attention) {
    attention.forward(0, q(), k(), v(), out.view(), lse.view());
    attention.backward(0, q(), k(), v(), out.view(), lse.view(), dout.view(), dq(), dk(), dv());
  }

  std::vector<std::pair<std::int64_t, std::int64_t>> tokens;
  Matrix qkv, dout, out, lse, dqkv;
};

/// Rounds what whole sequences add to gradients to bfloat16 first, as cuDNN does, which may compute them.
class RoundingOps final : public CpuOps {
 public:
  RoundingOps() : CpuOps(1, caller_stream()) {}

  void attention_backward(Stream& stream, const AttentionBackward& a) override {
    if (!are_whole_sequences(a.segments)) return CpuOps::attention_backward(stream, a);
    Matrix dq(a.dq.rows(), a.dq.cols());
    Matrix dk(a.dk.rows(), a.dk.cols());
    Matrix dv(a.dv.rows(), a.dv.cols());
    AttentionBackward share = a;
    share.dq = dq.view();
    share.dk = dk.view();
    share.dv = dv.view();
    CpuOps::attention_backward(stream, share);
    for (const auto& [gradient, sum] : {std::pair{&dq, a.dq}, std::pair{&dk, a.dk}, std::pair{&dv, a.dv}}) {
      for (std::int64_t i = 0; i < sum.elements(); ++i) {
        gradient->set(i, static_cast<float>(bfloat16(gradient->get(i))));
      }
      add(stream, gradient->view(), sum);
    }
  }
};

struct World {
  explicit World(std::unique_ptr<Device> chosen = make_cpu_device(1)) : device(std::move(chosen)) {}

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator = test::mpi_session().world();
  ControlChannel control{*communicator, device->communication_stream()};

  std::unique_ptr<RingAttention> ring_attention(const PlannedBatch& planned, DType dtype = DType::float32) {
    return std::make_unique<RingAttention>(
        MicroBatchAttentionOptions{shape, dtype, std::max<std::int64_t>(1, test::largest_share(planned)), true},
        *device, *communicator);
  }
};

AttentionReference reference_of(const Sequence& s) {
  const AttentionSegment whole = {0, s.length, 0, s.length, true};
  return attention_reference(shape, {&whole, 1}, s.q.view(), s.k.view(), s.v.view(), s.dout.view());
}

/// Largest error of each of out, lse, dq, dk, dv against the definition, relative to the largest value of the sequence
/// (at least 0.1: inputs have unit variance).
std::vector<double> errors_of(Packed& packed, const std::vector<Sequence>& sequences) {
  std::vector<double> errors(5, 0);
  std::vector<std::unique_ptr<AttentionReference>> known(sequences.size());
  for (std::size_t row = 0; row < packed.tokens.size(); ++row) {
    const auto index = static_cast<std::size_t>(packed.tokens[row].first);
    const std::int64_t token = packed.tokens[row].second;
    auto& reference = known[index];
    if (!reference) reference = std::make_unique<AttentionReference>(reference_of(sequences[index]));
    std::size_t which = 0;
    const auto compare = [&](ConstTensorView x, const std::vector<double>& expected) {
      double scale = 0.1;
      for (const double value : expected) scale = std::max(scale, std::abs(value));
      for (std::int64_t c = 0; c < x.cols(); ++c) {
        const double error = std::abs(value_at(x, static_cast<std::int64_t>(row), c) -
                                      expected[static_cast<std::size_t>(token * x.cols() + c)]);
        // Written so that a NaN counts as an error.
        if (!(error / scale <= errors[which])) errors[which] = error / scale;
      }
      ++which;
    };
    compare(packed.out.view(), reference->out.values);
    compare(packed.lse.view(), reference->lse);
    compare(packed.dq(), reference->dq.values);
    compare(packed.dk(), reference->dk.values);
    compare(packed.dv(), reference->dv.values);
  }
  return errors;
}

void check_against_definition(World& world, const PlannedBatch& planned) {
  const auto sequences = sequences_of(planned, DType::float32);
  const auto attention = world.ring_attention(planned);
  const MicroBatch batch = test::batch_of_rank(planned, rank());
  attention->begin(batch);
  Packed packed(batch, sequences, DType::float32);
  packed.run(*attention);
  for (const double error : errors_of(packed, sequences)) CHECK(error < 1e-5);
}

/// The same batch with sequences on the first `ranks` ranks only.
PlannedBatch on_first_ranks(int ranks, const std::vector<std::int64_t>& lengths) {
  PlannedBatch planned = test::on_one_ring(ranks, lengths);
  planned.micro_batch.local.resize(static_cast<std::size_t>(size()));
  return planned;
}

bool same_rows(const Matrix& a, const Matrix& b, std::size_t row) {
  for (std::int64_t c = 0; c < a.cols(); ++c) {
    const float x = a.at(static_cast<std::int64_t>(row), c);
    const float y = b.at(static_cast<std::int64_t>(row), c);
    if (std::memcmp(&x, &y, sizeof x) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("sequences of any length on rings of any size are attended to as on one rank", "[ring]") {
  World world;
  for (int ranks = 2; ranks <= size(); ++ranks) {
    for (const std::int64_t length : {1, 2, 3, 7, 31, 64, 127, 500}) {
      INFO(length << " tokens on a ring of " << ranks << ", rank " << rank());
      check_against_definition(world, on_first_ranks(ranks, {length}));
    }
    check_against_definition(world, on_first_ranks(ranks, {64, 1, 31, 127, 2, 3, 7}));
  }
}

TEST_CASE("rings that overlap in any way, beside local sequences, for any plan", "[ring]") {
  World world;
  for (std::uint64_t seed = 100; seed < 125; ++seed) {
    INFO("seed " << seed << ", rank " << rank());
    check_against_definition(world, test::random_batch(seed, size(), 9, 50));
  }
}

TEST_CASE("long sequences are computed in slices between the hops, with the same results in every run", "[ring]") {
  World world;
  PlannedBatch planned = on_first_ranks(size(), {600, 301});
  planned.lengths.insert(planned.lengths.end(), {700, 90});
  planned.micro_batch.local[0] = {2};
  planned.micro_batch.local[1] = {3};
  check_against_definition(world, planned);
  const MicroBatch batch = test::batch_of_rank(planned, rank());
  const auto order = order_backward(schedule_rings(batch), {(size() - 1) * test::largest_share(planned), 1});
  std::size_t slices = 0;
  for (const auto& group : order.local) slices += group.size();
  if (rank() == 0) CHECK(slices > batch.local.size() + 2);
  const auto sequences = sequences_of(planned, DType::float32);
  const auto attention = world.ring_attention(planned);
  attention->begin(batch);
  Packed first(batch, sequences, DType::float32);
  Packed second = first;
  first.run(*attention);
  second.run(*attention);
  CHECK(first.dqkv == second.dqkv);
}

TEST_CASE("layers and micro-batches follow each other through the same buffers", "[ring]") {
  World world;
  const PlannedBatch planned = test::random_batch(7, size(), 9, 50);
  const PlannedBatch other = on_first_ranks(size(), {41, 17});
  const auto attention =
      world.ring_attention(test::largest_share(planned) > test::largest_share(other) ? planned : other);
  for (int turn = 0; turn < 3; ++turn) {
    for (const PlannedBatch* batch_of_turn : {&planned, &other}) {
      const auto sequences = sequences_of(*batch_of_turn, DType::float32);
      const MicroBatch batch = test::batch_of_rank(*batch_of_turn, rank());
      attention->begin(batch);
      // As the model: all layers forward, then all backward.
      std::vector<Packed> layers(3, Packed(batch, sequences, DType::float32));
      for (Packed& p : layers) attention->forward(0, p.q(), p.k(), p.v(), p.out.view(), p.lse.view());
      for (Packed& p : layers) {
        attention->backward(0, p.q(), p.k(), p.v(), p.out.view(), p.lse.view(), p.dout.view(), p.dq(), p.dk(), p.dv());
      }
      for (Packed& p : layers) {
        CHECK(p.dqkv == layers.front().dqkv);
        CHECK(p.out == layers.front().out);
      }
      for (const double error : errors_of(layers.back(), sequences)) CHECK(error < 1e-5);
    }
  }
}

TEST_CASE("in bfloat16 the error is that of one rank", "[ring]") {
  RoundingOps rounding;
  const bool rounded = GENERATE(false, true);
  World world(rounded ? std::unique_ptr<Device>(new test::HostDevice(rounding)) : make_cpu_device(1));
  const std::vector<std::int64_t> lengths = {127, 300};
  // One rank holds both.
  PlannedBatch alone;
  alone.lengths = lengths;
  alone.micro_batch.local = {{0, 1}};
  const auto sequences = sequences_of(alone, DType::bfloat16);
  const MicroBatch whole = test::batch_of_rank(alone, 0);
  LocalAttention local(shape, whole.tokens(), true, *world.device);
  local.begin(whole);
  Packed packed(whole, sequences, DType::bfloat16);
  packed.run(local);
  const std::vector<double> expected = errors_of(packed, sequences);
  for (int ranks = 2; ranks <= size(); ++ranks) {
    const PlannedBatch planned = on_first_ranks(ranks, lengths);
    const auto attention = world.ring_attention(planned, DType::bfloat16);
    const MicroBatch batch = test::batch_of_rank(planned, rank());
    attention->begin(batch);
    Packed part(batch, sequences, DType::bfloat16);
    part.run(*attention);
    const std::vector<double> errors = errors_of(part, sequences);
    for (std::size_t i = 0; i < errors.size(); ++i) {
      INFO("ring of " << ranks << ", result " << i);
      CHECK(world.control.max(errors[i]) <= 2 * expected[i]);
      CHECK(expected[i] < 0.05);
    }
  }
}

TEST_CASE("one changed token changes no other sequence, and only later outputs of its own, bit for bit", "[ring]") {
  World world;
  const PlannedBatch planned = on_first_ranks(size(), {37, 50, 21});
  const MicroBatch batch = test::batch_of_rank(planned, rank());
  const auto attention = world.ring_attention(planned);
  attention->begin(batch);
  const auto run = [&](const std::vector<Sequence>& sequences) {
    Packed packed(batch, sequences, DType::float32);
    packed.run(*attention);
    return packed;
  };
  auto sequences = sequences_of(planned, DType::float32);
  const Packed before = run(sequences);
  const Packed again = run(sequences);
  CHECK(again.out == before.out);
  CHECK(again.lse == before.lse);
  CHECK(again.dqkv == before.dqkv);
  for (const std::int64_t place : {0, 13, 29, 49}) {
    INFO("token " << place);
    auto changed = sequences;
    for (std::int64_t c = 0; c < key_cols; ++c) {
      changed[1].k.set(place * key_cols + c, changed[1].k.at(place, c) + 1);
      changed[1].v.set(place * key_cols + c, changed[1].v.at(place, c) - 1);
    }
    const Packed after = run(changed);
    std::int64_t changed_outputs = 0;
    for (std::size_t row = 0; row < before.tokens.size(); ++row) {
      const auto [sequence, token] = before.tokens[row];
      if (sequence != 1) {
        CHECK(same_rows(before.dqkv, after.dqkv, row));
      }
      if (sequence != 1 || token < place) {
        CHECK(same_rows(before.out, after.out, row));
        CHECK(same_rows(before.lse, after.lse, row));
      } else if (!same_rows(before.out, after.out, row)) {
        ++changed_outputs;
      }
    }
    CHECK(world.control.sum(changed_outputs) == 50 - place);
  }
}

TEST_CASE("memory is what was planned, and misuse is an error", "[ring]") {
  World world;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const bool training : {true, false}) {
      const MicroBatchAttentionOptions options{shape, dtype, 100, training};
      const std::int64_t before = world.device->memory().current_bytes();
      const RingAttention attention(options, *world.device, *world.communicator);
      CHECK(world.device->memory().current_bytes() - before == RingAttention::planned_bytes(options, size()));
    }
  }
  PlannedBatch planned = on_first_ranks(size(), {8});
  const auto attention = world.ring_attention(planned);
  CHECK_THROWS_AS(attention->begin(test::batch_of_rank(on_first_ranks(size(), {64}), rank())), RunFailure);
  const MicroBatch batch = test::batch_of_rank(planned, rank());
  RingAttention evaluation({shape, DType::float32, 100, false}, *world.device, *world.communicator);
  evaluation.begin(batch);
  Packed packed(batch, sequences_of(planned, DType::float32), DType::float32);
  CHECK_THROWS_AS(evaluation.backward(0, packed.q(), packed.k(), packed.v(), packed.out.view(), packed.lse.view(),
                                      packed.dout.view(), packed.dq(), packed.dk(), packed.dv()),
                  RunFailure);
}
