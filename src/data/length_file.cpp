#include "skrull/data/length_file.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

#include "skrull/core/error.h"
#include "skrull/core/file.h"

namespace skrull {
namespace {

// Causal areas of sequences of this length still fit into 64 bits.
constexpr std::int64_t longest_length = INT32_MAX;

struct LengthLine {
  std::int64_t number = 0;  ///< from 1
  std::vector<std::int64_t> lengths;
};

std::int64_t parse_length(std::string_view word, const std::string& where) {
  std::int64_t length = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), length);
  if (problem != std::errc() || end != word.data() + word.size() || length < 1 || length > longest_length) {
    throw_invalid_input("{}: \"{}\" is no length: expected whole numbers from 1 to {}, separated by spaces", where,
                        word, longest_length);
  }
  return length;
}

std::vector<std::int64_t> parse_line(std::string_view line, const std::string& where) {
  constexpr std::string_view spaces = " \t\r";
  std::vector<std::int64_t> lengths;
  for (std::size_t begin = line.find_first_not_of(spaces); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(spaces, begin), line.size());
    lengths.push_back(parse_length(line.substr(begin, end - begin), where));
    begin = line.find_first_not_of(spaces, end);
  }
  return lengths;
}

std::vector<LengthLine> parse_lines(std::string_view text, const std::filesystem::path& file) {
  std::vector<LengthLine> lines;
  // Empty lines at the end mean nothing.
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string where = fmt::format("{}:{}", file.string(), number);
    lines.push_back({number, parse_line(text.substr(0, end), where)});
    if (lines.back().lengths.empty()) throw_invalid_input("{}: the line is empty: a batch needs a sequence", where);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.empty()) throw_invalid_input("{}: the file holds no lengths", file.string());
  return lines;
}

}  // namespace

std::vector<LengthBatch> read_length_file(const std::filesystem::path& file, std::int64_t batch_size) {
  require(batch_size >= 1, "a batch of {} sequences", batch_size);
  const std::vector<LengthLine> lines = parse_lines(MappedFile(file).text(), file);
  const bool one_per_line =
      std::all_of(lines.begin(), lines.end(), [](const LengthLine& line) { return line.lengths.size() == 1; });
  std::vector<LengthBatch> batches;
  if (one_per_line) {
    for (std::size_t first = 0; first < lines.size(); first += static_cast<std::size_t>(batch_size)) {
      LengthBatch& batch = batches.emplace_back();
      const std::size_t count = std::min(lines.size() - first, static_cast<std::size_t>(batch_size));
      for (std::size_t i = 0; i < count; ++i) batch.lengths.push_back(lines[first + i].lengths.front());
      batch.describe_origin = [file, first](std::size_t i) {
        return fmt::format("{}:{}", file.string(), first + i + 1);
      };
    }
    return batches;
  }
  for (const LengthLine& line : lines) {
    batches.push_back({line.lengths, [file, number = line.number](std::size_t i) {
                         return fmt::format("{}:{}: length {} of the line", file.string(), number, i + 1);
                       }});
  }
  return batches;
}

}  // namespace skrull
