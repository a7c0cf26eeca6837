/** Data that many pages use, loaded once per session: the models and the names of keys. */
import { type Signal, signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call } from './api.ts';
import { session } from './session.ts';
import type { ApiKey, List, Model } from './shapes.ts';

interface Lookup<T> {
  readonly list: Signal<readonly T[]>;
  readonly path: string;
  /** The session that loaded the list. */
  sessionId: string | undefined;
}

const models: Lookup<Model> = { list: signal([]), path: '/models?type=all', sessionId: undefined };
const keys: Lookup<ApiKey> = { list: signal([]), path: '/api_keys', sessionId: undefined };

function useLookup<T>(lookup: Lookup<T>, isAllowed: boolean): readonly T[] {
  const id = session.value?.id;
  useEffect(() => {
    if (!isAllowed || id === undefined || lookup.sessionId === id) return;
    lookup.sessionId = id;
    call<List<T>>(lookup.path).then(
      ({ data }) => (lookup.list.value = data),
      () => (lookup.sessionId = undefined), // the next page tries again
    );
  }, [id, isAllowed]);
  return isAllowed ? lookup.list.value : [];
}

/** All models that the session may use; empty until they are loaded. */
export function useModels(): readonly Model[] {
  return useLookup(models, true);
}

/** Descriptions of keys by id; empty for sessions that may not list keys. */
export function useKeyNames(isAllowed: boolean): ReadonlyMap<string, string> {
  return new Map(useLookup(keys, isAllowed).map(({ id, description }) => [id, description]));
}

/** Call after a key was created, changed or revoked. */
export function forgetKeyNames(): void {
  keys.sessionId = undefined;
}
