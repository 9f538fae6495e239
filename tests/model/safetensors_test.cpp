#include "skrull/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "message.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "support/support.h"

using namespace skrull;
namespace fs = std::filesystem;
using test::contains_all;

namespace {

/// A file as its bytes: length, header, data.
std::string file_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + data;
}

/// Two tensors: a = [1.5, -2] in F32, b = [[7], [8], [9]] in U8.
const std::string good_header =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[3,1],"data_offsets":[8,11]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::string good_data() {
  const float values[] = {1.5F, -2.0F};
  return std::string(reinterpret_cast<const char*>(values), sizeof values) + "\x07\x08\x09";
}

/// The message with which the file is refused, without its path.
std::string refusal(const std::string& bytes) {
  const test::TemporaryFolder folder;
  const fs::path file = folder / "weights.safetensors";
  std::ofstream(file, std::ios::binary) << bytes;
  const std::string message = test::message_of<InvalidInput>([&] { SafetensorsReader reader(file); });
  REQUIRE(message.starts_with(file.string() + ": "));
  return message.substr(file.string().size() + 2);
}

std::string header_refusal(const std::string& header) {
  return refusal(file_bytes(header, good_data()));
}

/// `count` floats first, first + 1, ...
TensorToWrite counting(const std::string& name, std::vector<std::int64_t> shape, float first) {
  const auto fill = [first](std::int64_t begin, std::span<char> target) {
    for (std::size_t i = 0; i < target.size() / sizeof(float); ++i) {
      const float value = first + static_cast<float>(begin) + static_cast<float>(i);
      std::memcpy(target.data() + i * sizeof value, &value, sizeof value);
    }
  };
  return {name, DType::float32, std::move(shape), fill};
}

float element(const StoredTensor& tensor, std::size_t index) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof value, sizeof value);
  return value;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a file's tensors come in the order of their bytes") {
  const test::TemporaryFolder folder;
  const fs::path file = folder / "x.safetensors";
  std::ofstream(file, std::ios::binary) << file_bytes(good_header, good_data());
  const SafetensorsReader reader(file);
  REQUIRE(reader.tensors().size() == 2);
  const StoredTensor& a = reader.tensors()[0];
  CHECK(a.name == "a");
  CHECK(a.dtype == DType::float32);
  CHECK(a.shape == std::vector<std::int64_t>{2});
  CHECK(element(a, 0) == 1.5F);
  CHECK(element(a, 1) == -2.0F);
  const StoredTensor& b = *reader.find("b");
  CHECK(b.shape == std::vector<std::int64_t>{3, 1});
  CHECK(std::string(b.bytes.data(), b.bytes.size()) == "\x07\x08\x09");
  CHECK(b.file == file);
  CHECK(reader.find("c") == nullptr);
}

TEST_CASE("a scalar and an empty tensor are tensors") {
  const test::TemporaryFolder folder;
  const fs::path file = folder / "x.safetensors";
  std::ofstream(file, std::ios::binary) << file_bytes(
      R"({"e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
      good_data().substr(0, 4));
  const SafetensorsReader reader(file);
  CHECK(reader.find("e")->bytes.empty());
  CHECK(element(*reader.find("s"), 0) == 1.5F);
}

TEST_CASE("a file cut anywhere is refused") {
  const std::string whole = file_bytes(good_header, good_data());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string message = refusal(whole.substr(0, length));
    CHECK(contains_all(message, {"truncated"}));
  }
  CHECK(contains_all(refusal(whole + "x"), {"1 bytes at the end belong to no tensor"}));
}

TEST_CASE("damaged headers are refused by what is wrong with them") {
  std::string huge = file_bytes(good_header, good_data());
  huge.replace(0, 8, std::string(8, '\xFF'));
  CHECK(contains_all(refusal(huge), {"header length 18446744073709551615", "not a safetensors file"}));
  huge.replace(0, 8, std::string("\x00\x00\x00\x01\x00\x00\x00\x00", 8));
  CHECK(contains_all(refusal(huge), {"truncated", "16777216"}));
  CHECK(contains_all(header_refusal("{\"a\":"), {"not JSON"}));
  CHECK(contains_all(header_refusal("[1]"), {"not a JSON object"}));
  CHECK(contains_all(header_refusal(R"({"a":5})"), {"tensor a", "object"}));
  CHECK(contains_all(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
                     {"tensor a appears twice"}));
}

TEST_CASE("tensors whose description is wrong are refused by name") {
  const auto one = [](const std::string& description) { return header_refusal("{\"a\":{" + description + "}}"); };
  CHECK(contains_all(one(R"("shape":[2],"data_offsets":[0,8])"), {"tensor a", "dtype", "null"}));
  CHECK(contains_all(one(R"("dtype":"F8_E4M3","shape":[2],"data_offsets":[0,8])"), {"tensor a", "F8_E4M3"}));
  CHECK(contains_all(one(R"("dtype":"F32","data_offsets":[0,8])"), {"tensor a", "shape"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), {"tensor a", "[-2]"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), {"tensor a", "[2.0]"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8])"),
                     {"tensor a", "beyond any file"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[2])"), {"tensor a", "data_offsets"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), {"tensor a", "data_offsets"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[2],"data_offsets":[-1,7])"), {"tensor a", "data_offsets"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), {"tensor a", "ends (0)"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])"), {"tensor a", "12 of 11", "truncated"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"),
                     {"tensor a", "[1]", "float32", "needs 4 bytes", "gives it 8"}));
  CHECK(contains_all(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), {"4 bytes before tensor a"}));
  CHECK(contains_all(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                    R"("b":{"dtype":"U8","shape":[4],"data_offsets":[7,11]}})"),
                     {"tensor b overlaps"}));
}

TEST_CASE("a folder without weights says what was looked for") {
  const test::TemporaryFolder folder;
  const auto read = [&] { SafetensorsReader reader(folder.path()); };
  CHECK_FALSE(has_safetensors(folder.path()));
  CHECK(contains_all(test::message_of<InvalidInput>(read),
                     {folder.path().string(), "model.safetensors", "model.safetensors.index.json"}));
  std::ofstream(folder / "pytorch_model.bin") << "x";
  CHECK(contains_all(test::message_of<InvalidInput>(read), {"safe_serialization"}));
  CHECK(contains_all(test::message_of<InvalidInput>([&] { SafetensorsReader reader(folder / "nothing"); }),
                     {"nothing", "no such"}));
}

TEST_CASE("small models are one file, large ones shards with an index") {
  const test::TemporaryFolder folder;
  const std::vector<TensorToWrite> tensors = {counting("z", {3, 2}, 100), counting("y", {4}, 200),
                                              counting("x", {10}, 300), counting("w", {1}, 400)};
  write_safetensors(folder.path(), tensors);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"model.safetensors"});

  write_safetensors(folder.path(), tensors, 40);
  CHECK(names_in(folder.path()) ==
        std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  const Json index = read_json_file(folder / "model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == 84);
  CHECK(index["weight_map"] == Json({{"w", "model-00003-of-00003.safetensors"},
                                     {"x", "model-00002-of-00003.safetensors"},
                                     {"y", "model-00001-of-00003.safetensors"},
                                     {"z", "model-00001-of-00003.safetensors"}}));
  const SafetensorsReader reader(folder.path());
  REQUIRE(reader.tensors().size() == 4);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& stored = reader.tensors()[i];
    CHECK(stored.name == tensors[i].name);
    CHECK(stored.shape == tensors[i].shape);
    const auto count = static_cast<std::size_t>(tensors[i].elements());
    const float first = 100.0F * static_cast<float>(i + 1);
    CHECK(element(stored, 0) == first);
    CHECK(element(stored, count - 1) == first + static_cast<float>(count - 1));
  }
  write_safetensors(folder.path(), tensors);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"model.safetensors"});
}

TEST_CASE("a written file is laid out as the format wants it") {
  const test::TemporaryFolder folder;
  write_safetensors(folder.path(), {counting("b", {1}, 5), counting("a", {2}, 7)});
  const std::string bytes = read_file(folder / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  CHECK(length % 8 == 0);
  CHECK(bytes.size() == 8 + length + 12);
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  CHECK(bytes.substr(8, header.size()) == header);
}

TEST_CASE("a tensor larger than the pieces it is filled in arrives whole") {
  const test::TemporaryFolder folder;
  const std::int64_t elements = (std::int64_t{16} << 20) / 4 + 3;
  write_safetensors(folder.path(), {counting("big", {elements}, 0)});
  const SafetensorsReader reader(folder.path());
  for (const std::int64_t i : {std::int64_t{0}, elements - 4, elements - 3, elements - 1}) {
    CHECK(element(*reader.find("big"), static_cast<std::size_t>(i)) == static_cast<float>(i));
  }
}

TEST_CASE("indexes that do not fit their shards are refused") {
  const test::TemporaryFolder folder;
  const std::vector<TensorToWrite> tensors = {counting("a", {4}, 0), counting("b", {4}, 0)};
  write_safetensors(folder.path(), tensors, 16);
  const fs::path index_file = folder / "model.safetensors.index.json";
  const OrderedJson good = read_ordered_json_file(index_file);
  const auto refused = [&](const OrderedJson& index) {
    write_json_file(index_file, index);
    return test::message_of<InvalidInput>([&] { SafetensorsReader reader(folder.path()); });
  };
  OrderedJson index = good;
  index["weight_map"]["c"] = "model-00001-of-00002.safetensors";
  CHECK(contains_all(refused(index), {"tensor c", "model-00001-of-00002.safetensors", "index.json"}));
  index = good;
  index["weight_map"]["b"] = "model-00003-of-00002.safetensors";
  CHECK(contains_all(refused(index), {"model-00003-of-00002.safetensors", "missing"}));
  index["weight_map"]["b"] = "../elsewhere.safetensors";
  CHECK(contains_all(refused(index), {"tensor b", "same folder"}));
  index["weight_map"]["b"] = 5;
  CHECK(contains_all(refused(index), {"tensor b", "5"}));
  CHECK(contains_all(refused({{"metadata", 1}}), {"weight_map"}));
  // A tensor of the shard that the index places elsewhere, or nowhere, is not the model's.
  index = good;
  index["weight_map"].erase("b");
  write_json_file(index_file, index);
  CHECK(SafetensorsReader(folder.path()).tensors().size() == 1);
  // Damage of a shard names the shard.
  fs::resize_file(folder / "model-00001-of-00002.safetensors", 90);
  CHECK(contains_all(refused(good), {"model-00001-of-00002.safetensors", "truncated"}));
}

TEST_CASE("writing fails with a reason and leaves nothing") {
  const test::TemporaryFolder folder;
  CHECK(contains_all(test::message_of<RunFailure>([&] { write_safetensors(folder / "none", {counting("a", {1}, 0)}); }),
                     {"none"}));
  // 2^60 bytes: more than any disk.
  CHECK(contains_all(test::message_of<RunFailure>(
                         [&] { write_safetensors(folder.path(), {counting("a", {std::int64_t{1} << 58}, 0)}); }),
                     {folder.path().string(), "too full", "needed", "free"}));
  TensorToWrite failing = counting("a", {4}, 0);
  failing.fill = [](std::int64_t, std::span<char>) { throw RunFailure("gathering failed"); };
  CHECK_THROWS_AS(write_safetensors(folder.path(), {failing}), RunFailure);
  CHECK_THROWS_AS(write_safetensors(folder.path(), {counting("a", {1}, 0), counting("a", {1}, 0)}), RunFailure);
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a pointer of Git LFS in a file's place is named as such") {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n";
  CHECK(contains_all(refusal(pointer), {"is a pointer of Git LFS", "git lfs pull"}));
}
