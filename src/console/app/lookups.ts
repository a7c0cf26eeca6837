/** What many pages name things by: the models on offer and the names of keys, asked for once. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call } from './api.ts';
import { session } from './session.ts';
import type { ApiKey, Model } from './shapes.ts';

const models = signal<readonly Model[]>([]);
const keyNames = signal<ReadonlyMap<string, string>>(new Map());
let modelsOf: string | undefined;
let keysOf: string | undefined;

/** Every model that the viewer may ask; empty until it is there. */
export function useModels(): readonly Model[] {
  const id = session.value?.id;
  useEffect(() => {
    if (id === undefined || modelsOf === id) return;
    modelsOf = id;
    call<{ data: readonly Model[] }>('/models?type=all').then(
      ({ data }) => (models.value = data),
      () => (modelsOf = undefined), // the next page asks again; filters work without
    );
  }, [id]);
  return models.value;
}

/** Descriptions of keys by id; empty for viewers that may not list them. */
export function useKeyNames(may: boolean): ReadonlyMap<string, string> {
  const id = session.value?.id;
  useEffect(() => {
    if (!may || id === undefined || keysOf === id) return;
    keysOf = id;
    call<{ data: readonly ApiKey[] }>('/api_keys').then(
      ({ data }) => (keyNames.value = new Map(data.map((key) => [key.id, key.description]))),
      () => (keysOf = undefined), // ids are shown instead
    );
  }, [id, may]);
  return may ? keyNames.value : NO_NAMES;
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

/** Keys were made or revoked. */
export function forgetKeyNames(): void {
  keysOf = undefined;
}
