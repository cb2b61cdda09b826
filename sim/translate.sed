# Translates CUDA to C++ line by line, so that compilers and debuggers point to lines of the source.
#
#     sed -E -f translate.sed train.cu

# extern __shared__ float tile[];
s/extern +__shared__ +((__align__|alignas)\([^)]*\) +)?([A-Za-z_][A-Za-z0-9_: ]*) +([A-Za-z_][A-Za-z0-9_]*)\[\];/\3 *\4 = simulator::dynamic_shared<\3>();/

# __shared__ float a[32], b[32][33]; becomes two declarations, and each of them a reference.
:split
s/(__shared__ +((__align__|alignas)\([^)]*\) +)?([A-Za-z_][A-Za-z0-9_: ]*) +[A-Za-z_][A-Za-z0-9_]*(\[[^];]+\])*), */\1; __shared__ \4 /
t split
s/(static +)?__shared__ +((__align__|alignas)\([^)]*\) +)?([A-Za-z_][A-Za-z0-9_: ]*) +([A-Za-z_][A-Za-z0-9_]*)((\[[^];]+\])*);/auto \&\5 = simulator::shared<\4\6>([] {});/g

# __device__ float total; lies where its accesses are followed.
s/^(static +)?__device__ +([^()]*[;=])/\1__attribute__((section("device_variables"))) \2/

# kernel<32><<<grid, block, shared_bytes, stream>>>(arguments);
s/([A-Za-z_][A-Za-z0-9_:]*(<[^<>;]*>)?)<<<([^;]*)>>>\(/simulator::launch(\1, "\1", \3)(/g

# __global__ void __cluster_dims__(8, 1, 1) kernel(arguments) {
s/^(.*)__cluster_dims__\(([^)]*)\) *(.* )?([A-Za-z_][A-Za-z0-9_]*)\(/static const simulator::declared_clusters clusters_of_\4("\4", {\2}); \1\3\4(/

# The kernel's type has its parameters, which a pointer to anything does not say.
s/cudaLaunchCooperativeKernel\(\(const void \*\)/cudaLaunchCooperativeKernel(/
