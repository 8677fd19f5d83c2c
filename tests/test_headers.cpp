#include "tests/test_headers.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
template class std::vector<nlohmann::ordered_json>;
template struct nlohmann::ordered_map<std::string, nlohmann::ordered_json>;
