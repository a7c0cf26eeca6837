/**
 * Data that a page loads from the API. A reload keeps the old data until the new data arrives, and
 * aborts an earlier load.
 */
import { type Signal, useSignal } from '@preact/signals';
import { useCallback, useEffect, useRef } from 'preact/hooks';
import { ApiError, call } from './api.ts';

export interface Resource<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/** Loads again when `key` changes; `undefined` loads nothing. */
export function useResource<T>(
  key: string | undefined,
  load: (signal: AbortSignal) => Promise<T>,
): Resource<T> {
  const state = useSignal<State<T>>({ key, data: undefined, error: undefined, isLoading: true });
  const running = useRef<AbortController>(undefined);
  const latest = useRef(load);
  latest.current = load;
  const reload = useCallback(() => {
    if (key === undefined) return;
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    void run(state, key, latest.current, abort.signal);
  }, [key, state]);
  useEffect(() => {
    reload();
    return () => running.current?.abort();
  }, [reload]);
  const { data, error, isLoading } = state.value;
  const isOther = state.value.key !== key;
  return isOther
    ? { data: undefined, error: undefined, isLoading: key !== undefined, reload }
    : { data, error, isLoading: isLoading && key !== undefined, reload };
}

/** Loads the JSON of a path below the base; `undefined` loads nothing. */
export function useCall<T>(path: string | undefined): Resource<T> {
  return useResource(path, (signal) => call<T>(path ?? '', { signal }));
}

/** Calls `run` at an interval while the page is visible; never if the interval is `undefined`. */
export function useInterval(intervalMs: number | undefined, run: () => void): void {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    if (intervalMs === undefined) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
}

interface State<T> {
  readonly key: string | undefined;
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
}

async function run<T>(
  state: Signal<State<T>>,
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<void> {
  const before = state.peek();
  const data = before.key === key ? before.data : undefined;
  state.value = { key, data, error: undefined, isLoading: true };
  try {
    const loaded = await load(signal);
    if (!signal.aborted) {
      state.value = { key, data: loaded, error: undefined, isLoading: false };
    }
  } catch (error) {
    if (signal.aborted) return;
    state.value = { key, data, error: ApiError.of(error), isLoading: false };
  }
}
