// Trains the network with oneDNN. Every product is a matmul, which oneDNN compiles for its shape
// before the clock starts. The bias and the ReLU are fused into the first, the update into those of
// the weight gradients. A matmul computes on one thread. slices.h has the rest, and the shapes.
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

// At WIDEST units, a slice's 400 KB of W1 stay in the second-level cache.
enum { WIDEST = 128 };

// A product, dst = src·weights, and its operands: src, weights, dst, scratchpad, bias.
struct product {
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t operands[5];
    int count; // without a bias 4
};

struct products {
    dnnl_engine_t engine;
    struct product activations; // a = max(0, x·W1 + b1)
    struct product outputs;     // z += a·W2
    struct product d_hidden;    // da = dz·W2ᵀ
    struct product weights2;    // W2ᵀ += dzᵀ·a
    struct product weights1;    // W1 += xᵀ·da
};

#include "slices.h"

// What comes after a product: nothing, the sum with what was there, or a bias and the ReLU.
enum after { NOTHING, SUM, BIAS_AND_RELU };

static void check(dnnl_status_t status) {
    if (status != dnnl_success) {
        fprintf(stderr, STAGE ": oneDNN failed with status %d\n", (int)status);
        exit(EXIT_RUN_FAILED);
    }
}

// oneDNN 3 has other functions for what oneDNN 2 does in these.
#if DNNL_VERSION_MAJOR < 3
#define dnnl_memory_desc_create_with_tag dnnl_memory_desc_init_by_tag
#define dnnl_memory_desc_destroy(layout) dnnl_success

static dnnl_status_t describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                              const dnnl_memory_desc_t layouts[4], enum after after,
                              const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t matmul;
    check(dnnl_matmul_desc_init(&matmul, &layouts[0], &layouts[1],
                                after == BIAS_AND_RELU ? &layouts[3] : NULL, &layouts[2]));
    return dnnl_primitive_desc_create(description, &matmul, attributes, engine, NULL);
}

static dnnl_status_t append(dnnl_post_ops_t operations, enum after after) {
    return after == SUM ? dnnl_post_ops_append_sum(operations, 1)
                        : dnnl_post_ops_append_eltwise(operations, 1, dnnl_eltwise_relu, 0, 0);
}
#else
static dnnl_status_t describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                              const dnnl_memory_desc_t layouts[4], enum after after,
                              const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(description, engine, layouts[0], layouts[1],
                                             after == BIAS_AND_RELU ? layouts[3] : NULL, layouts[2],
                                             attributes);
}

static dnnl_status_t append(dnnl_post_ops_t operations, enum after after) {
    return after == SUM ? dnnl_post_ops_append_sum(operations, 1, 0, dnnl_data_type_undef)
                        : dnnl_post_ops_append_eltwise(operations, dnnl_eltwise_relu, 0, 0);
}
#endif

// Compiles a product of an m × k and a k × n matrix. dnnl_ab is row-major, dnnl_ba column-major.
static struct product compile(dnnl_engine_t engine, size_t m, size_t n, size_t k,
                              dnnl_format_tag_t src, dnnl_format_tag_t weights, enum after after) {
    static const int OPERANDS[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                   DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    const size_t rows[] = {m, k, m, 1}, columns[] = {k, n, n, n};
    const dnnl_format_tag_t order[] = {src, weights, dnnl_ab, dnnl_ab};
    struct product product = {.count = after == BIAS_AND_RELU ? 5 : 4};
    dnnl_memory_desc_t layouts[4];
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t operations;
    dnnl_primitive_desc_t description;

    for (int i = 0; i < 4; ++i) {
        const dnnl_dims_t sizes = {(dnnl_dim_t)rows[i], (dnnl_dim_t)columns[i]};
        check(dnnl_memory_desc_create_with_tag(&layouts[i], 2, sizes, dnnl_f32, order[i]));
    }
    check(dnnl_primitive_attr_create(&attributes));
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    check(dnnl_post_ops_create(&operations));
    if (after != NOTHING)
        check(append(operations, after));
    check(dnnl_primitive_attr_set_post_ops(attributes, operations));
    check(describe(&description, engine, layouts, after, attributes));
    check(dnnl_primitive_create(&product.primitive, description));
    check(dnnl_stream_create(&product.stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i < product.count; ++i) {
        const bool is_scratchpad = OPERANDS[i] == DNNL_ARG_SCRATCHPAD;
        product.operands[i].arg = OPERANDS[i];
        check(dnnl_memory_create(
            &product.operands[i].memory,
            dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, OPERANDS[i]), engine,
            is_scratchpad ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE));
    }
    check(dnnl_primitive_desc_destroy(description));
    check(dnnl_post_ops_destroy(operations));
    check(dnnl_primitive_attr_destroy(attributes));
    for (int i = 0; i < 4; ++i)
        check(dnnl_memory_desc_destroy(layouts[i]));
    return product;
}

static void discard(const struct product *product) {
    for (int i = 0; i < product->count; ++i)
        check(dnnl_memory_destroy(product->operands[i].memory));
    check(dnnl_stream_destroy(product->stream));
    check(dnnl_primitive_destroy(product->primitive));
}

// dst = src·weights, and what comes after it.
static void multiply(const struct product *product, const float *src, const float *weights,
                     float *dst, const float *bias) {
    const float *const operands[] = {src, weights, dst, NULL, bias};
    for (int i = 0; i < product->count; ++i)
        if (operands[i])
            check(dnnl_memory_set_data_handle(product->operands[i].memory, (void *)operands[i]));
    check(dnnl_primitive_execute(product->primitive, product->stream, product->count,
                                 product->operands));
}

static struct products compile_products(size_t n, size_t width) {
    dnnl_engine_t engine;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0));
    omp_set_num_threads(1); // oneDNN compiles for so many
    return (struct products){
        .engine = engine,
        .activations = compile(engine, n, width, PIXELS, dnnl_ab, dnnl_ab, BIAS_AND_RELU),
        .outputs = compile(engine, n, CLASSES, width, dnnl_ab, dnnl_ba, SUM),
        .d_hidden = compile(engine, n, width, CLASSES, dnnl_ab, dnnl_ab, NOTHING),
        .weights2 = compile(engine, CLASSES, width, n, dnnl_ba, dnnl_ab, SUM),
        .weights1 = compile(engine, PIXELS, width, n, dnnl_ba, dnnl_ab, SUM),
    };
}

static void discard_products(const struct products *products) {
    discard(&products->activations);
    discard(&products->outputs);
    discard(&products->d_hidden);
    discard(&products->weights2);
    discard(&products->weights1);
    check(dnnl_engine_destroy(products->engine));
}

static void predict(const struct products *products, const struct slice *slice,
                    const struct batch *batch, float *z) {
    multiply(&products->activations, batch->images, slice->weights1, slice->activations,
             slice->bias1);
    multiply(&products->outputs, slice->activations, slice->weights2, z, NULL);
}

static void propagate(const struct products *products, const struct slice *slice, const float *dz,
                      float *da) {
    multiply(&products->d_hidden, dz, slice->weights2, da, NULL);
    multiply(&products->weights2, dz, slice->activations, slice->weights2, NULL);
}

static void update(const struct products *products, const struct slice *slice,
                   const struct batch *batch, const float *da) {
    multiply(&products->weights1, batch->images, da, slice->weights1, NULL);
}

int main(int argc, char **argv) {
    return run(argc, argv, "Trains with oneDNN.");
}
