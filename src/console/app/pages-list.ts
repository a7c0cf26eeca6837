/** A list that pages by cursor: the first page is a resource, the others join it when asked for. */
import { useEffect, useState } from 'preact/hooks';
import { ApiError, call } from './api.ts';
import { type Resource, useCall } from './resource.ts';
import type { Page } from './shapes.ts';

export interface CursorList<T> {
  readonly first: Resource<Page<T>>;
  readonly rows: readonly T[];
  readonly isLoadingMore: boolean;
  readonly moreError: ApiError | undefined;
  /** Missing when everything is there. */
  readonly more: (() => void) | undefined;
}

/** `path`: with its filters, without a cursor; `undefined` asks for nothing. */
export function useCursorList<T>(path: string | undefined): CursorList<T> {
  const first = useCall<Page<T>>(path);
  const [later, setLater] = useState<Page<T>>(NOTHING);
  const [isLoadingMore, setLoading] = useState(false);
  const [moreError, setError] = useState<ApiError>();
  const { data } = first;
  useEffect(() => setLater(NOTHING), [data]);
  const isExtended = later.data.length > 0;
  const cursor = isExtended ? later.nextCursor : (data?.nextCursor ?? null);
  const load = async (): Promise<void> => {
    setLoading(true);
    setError(undefined);
    try {
      const mark = (path ?? '').includes('?') ? '&' : '?';
      const next = await call<Page<T>>(`${path}${mark}cursor=${encodeURIComponent(cursor ?? '')}`);
      setLater((before) => ({
        data: [...before.data, ...next.data],
        nextCursor: next.nextCursor,
      }));
    } catch (error) {
      setError(ApiError.of(error));
    } finally {
      setLoading(false);
    }
  };
  return {
    first,
    rows: [...(data?.data ?? []), ...later.data],
    isLoadingMore,
    moreError,
    more: cursor === null ? undefined : () => void load(),
  };
}

const NOTHING: Page<never> = { data: [], nextCursor: null };
