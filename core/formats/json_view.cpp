#include "core/formats/json_view.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace qtrain {
namespace {

constexpr std::size_t kLongestShown = 60;
constexpr std::uint64_t kMaxSigned = std::numeric_limits<std::int64_t>::max();

// A short form of a value for messages.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  const std::string text = dump_json(value);
  return text.size() <= kLongestShown ? text : "a string of " + std::to_string(text.size() - 2) + " bytes";
}

}  // namespace

void JsonView::refuse(const std::string& cause, const std::string& remedy) const {
  fail(ErrorKind::input,
       {.cause = cause, .place = path_, .remedy = remedy.empty() ? "correct the file, or fetch it again" : remedy});
}

void JsonView::refuse_type(std::string_view wanted) const {
  refuse(fmt::format("must be {}, not {}", wanted, shown(*value_)));
}

std::string JsonView::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) refuse_type("an object");
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) return {};
  return JsonView(*it, path_of(key));
}

JsonView JsonView::at(std::string_view key) const {
  const auto found = find(key);
  if (!found) refuse(fmt::format("\"{}\" is missing", key));
  return *found;
}

JsonView JsonView::entry(std::size_t index) const {
  if (index >= list().size()) refuse(fmt::format("must have more than {} entries", index));
  return {(*value_)[index], fmt::format("{}[{}]", path_, index)};
}

const std::string& JsonView::text() const {
  if (!value_->is_string()) refuse_type("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonView::flag() const {
  if (!value_->is_boolean()) refuse_type("true or false");
  return value_->get<bool>();
}

double JsonView::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) refuse_type("a number");
  return value_->get<double>();
}

std::int64_t JsonView::integer(IntegerRange range) const {
  const bool above = value_->is_number_unsigned() && value_->get<std::uint64_t>() > kMaxSigned;
  const std::int64_t v = value_->is_number_integer() && !above ? value_->get<std::int64_t>() : 0;
  if (!value_->is_number_integer() || above || v < range.least || v > range.most)
    refuse_type(fmt::format("an integer from {} to {}", range.least, range.most));
  return v;
}

std::string JsonView::text(std::string_view key, std::string_view otherwise) const {
  const auto v = find(key);
  return v ? v->text() : std::string(otherwise);
}

bool JsonView::flag(std::string_view key, bool otherwise) const {
  const auto v = find(key);
  return v ? v->flag() : otherwise;
}

double JsonView::number(std::string_view key, double otherwise) const {
  const auto v = find(key);
  return v ? v->number() : otherwise;
}

const Json::array_t& JsonView::list() const {
  if (!value_->is_array()) refuse_type("a list");
  return value_->get_ref<const Json::array_t&>();
}

const Json::object_t& JsonView::object() const {
  if (!value_->is_object()) refuse_type("an object");
  return value_->get_ref<const Json::object_t&>();
}

std::string plain_text(const nlohmann::json::exception& error) {
  const std::string_view what = error.what();
  const auto bracket = what.find("] ");
  return std::string(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
}

}  // namespace qtrain
