#include "engine/comm/launch.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/comm/conformance_support.hpp"

namespace engine::comm::test {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchInfo> detect(const Variables& variables) {
  return detect_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_place(const Variables& variables, int rank, int size, int local_rank,
                  const std::string& host, int port = 0) {
  const auto info = detect(variables);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->rank, rank);
  EXPECT_EQ(info->world_size, size);
  EXPECT_EQ(info->local_rank, local_rank);
  EXPECT_EQ(info->master_host, host);
  if (port > 0) {
    EXPECT_EQ(info->master_port, port);
  } else {
    EXPECT_GT(info->master_port, 1024);
  }
}

TEST(Launch, NoVariablesNoLauncher) { EXPECT_FALSE(detect({}).has_value()); }

TEST(Launch, Torchrun) {
  expect_place({{"RANK", "3"},
                {"WORLD_SIZE", "8"},
                {"LOCAL_RANK", "1"},
                {"MASTER_ADDR", "node0"},
                {"MASTER_PORT", "29500"}},
               3, 8, 1, "node0", 29500);
  EXPECT_EQ(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->world_size, 1);
  const Variables two = {{"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "here"},
                         {"MASTER_PORT", "29500"}};
  EXPECT_EQ(detect(two)->local_size, 2);
}

TEST(Launch, Slurm) {
  Variables v = {{"SLURM_PROCID", "5"},    {"SLURM_NTASKS", "6"},
                 {"SLURM_LOCALID", "2"},   {"SLURM_STEP_ID", "0"},
                 {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_NODELIST", "gpu[03-05,9],cpu1"}};
  expect_place(v, 5, 6, 2, "gpu03");
  const int port = detect(v)->master_port;
  v["SLURM_PROCID"] = "0";
  EXPECT_EQ(detect(v)->master_port, port);  // all ranks agree
  for (const auto& [list, first] : std::map<std::string, std::string>{
           {"n1,n2", "n1"}, {"n7", "n7"}, {"a-[1-2]-b,c", "a-1-b"}, {"a,b[1-2]", "a"}}) {
    v["SLURM_STEP_NODELIST"] = list;
    expect_place(v, 0, 6, 2, first);
  }
  v["MASTER_ADDR"] = "elsewhere";
  v["MASTER_PORT"] = "1234";
  expect_place(v, 0, 6, 2, "elsewhere", 1234);
}

/// In a shell of salloc or sbatch the allocation's variables are there, but nothing was started.
TEST(Launch, ASlurmAllocationAloneIsNoLauncher) {
  EXPECT_FALSE(detect({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}}).has_value());
  EXPECT_FALSE(
      detect({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}).has_value());
}

TEST(Launch, OpenMpi) {
  const Variables v = {{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "job-17"}};
  expect_place(v, 1, 2, 1, "127.0.0.1");
  Variables spread = v;
  spread["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  expect_error(Errc::invalid_argument, {"MASTER_ADDR"}, [&] { detect(spread); });
}

TEST(Launch, Pmi) {
  expect_place(
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}}, 2,
      4, 2, "127.0.0.1");
}

TEST(Launch, WhatIsWrongIsNamed) {
  const auto wrong = [](const Variables& v, const std::vector<std::string>& parts) {
    expect_error(Errc::invalid_argument, parts, [&] { detect(v); });
  };
  wrong({{"RANK", "0"}}, {"WORLD_SIZE", "not set"});
  wrong({{"RANK", "x"}, {"WORLD_SIZE", "2"}}, {"RANK = \"x\"", "from 0 to 1"});
  wrong({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, {"RANK = \"2\"", "from 0 to 1"});
  wrong({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE"});
  wrong({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"MASTER_ADDR"});
  wrong({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}, {"MASTER_PORT"});
  wrong({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "70000"}},
        {"MASTER_PORT = \"70000\""});
}

}  // namespace
}  // namespace engine::comm::test
