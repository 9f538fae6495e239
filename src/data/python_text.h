#pragma once
// JSON values printed as Python prints them, which is what chat templates written in Jinja do.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace skrull {

/// json.dumps(value, ensure_ascii=False). Binary values are the digits of big integers (see parse_row).
std::string python_json(const nlohmann::ordered_json& value);

/// str(value): text as it is, None, True, 1e+22, {'key': 'text'}.
std::string python_str(const nlohmann::ordered_json& value);

/// bool(value)
bool python_truth(const nlohmann::ordered_json& value);

/// repr(value) of a finite number: the shortest digits that read back as the same number.
std::string python_float(double value);

}  // namespace skrull
