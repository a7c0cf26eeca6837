/**
 * Options of all sessions of the ONNX runtime.
 *
 * Threads that wait for work do not spin: on two threads, spinning doubled the CPU time of a model
 * and took it from chats.
 */
export function onnxOptions(threads: number) {
  return {
    // The arena would keep the memory of the largest input allocated; it does not save time.
    enableCpuMemArena: false,
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    executionMode: 'sequential',
    logSeverityLevel: 3,
    extra: { session: { intra_op: { allow_spinning: '0' } } },
  } as const;
}
