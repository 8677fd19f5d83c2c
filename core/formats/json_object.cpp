#include "core/formats/json_object.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace qtrain {
namespace {

constexpr std::size_t kFewMembers = 12;  // up to which comparing all pairs beats sorting

bool names_differ(const Json::object_t& members) {
  for (std::size_t i = 1; i < members.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (members.data()[i].first == members.data()[k].first) return false;
  return true;
}

/// The index of the first member with the same name, for each member.
std::vector<std::size_t> first_of_name(const Json::object_t& members) {
  std::vector<std::size_t> order(members.size()), first(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return members.data()[a].first < members.data()[b].first; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool again = i > 0 && members.data()[order[i]].first == members.data()[order[i - 1]].first;
    first[order[i]] = again ? first[order[i - 1]] : order[i];
  }
  return first;
}

}  // namespace

Json JsonObject::take() {
  if (members_.size() <= kFewMembers && names_differ(members_)) return Json(std::exchange(members_, {}));
  const std::vector<std::size_t> first = first_of_name(members_);
  bool differ = true;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] == i) continue;
    members_.data()[first[i]].second = std::move(members_.data()[i].second);
    differ = false;
  }
  if (differ) return Json(std::exchange(members_, {}));
  Json::object_t unique;
  for (std::size_t i = 0; i < first.size(); ++i)
    if (first[i] == i) unique.emplace_back(members_.data()[i].first, std::move(members_.data()[i].second));
  members_.clear();
  return Json(std::move(unique));
}

}  // namespace qtrain
