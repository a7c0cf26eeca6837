/** A list with cursor pagination: loads the first page, and later pages on demand. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call } from './api.ts';
import { type Resource, useCall } from './resource.ts';

/** A page with `nextCursor`, or in the form of the OpenAI API. */
interface Page<T> {
  readonly data: readonly T[];
  readonly nextCursor?: string | null;
  readonly has_more?: boolean;
  readonly last_id?: string | null;
}

export interface CursorList<T> {
  readonly first: Resource<Page<T>>;
  readonly rows: readonly T[];
  readonly isLoadingMore: boolean;
  readonly moreError: ApiError | undefined;
  /** Loads the next page; `undefined` after the last page. */
  readonly more: (() => void) | undefined;
  /** Loads the first page again, but not while somebody reads a later one, which would disappear. */
  readonly renew: () => void;
}

/** `path`: with its filters, without a cursor. */
export function useCursorList<T>(path: string): CursorList<T> {
  const first = useCall<Page<T>>(path);
  const [later, setLater] = useState<Page<T>>(EMPTY_PAGE);
  const [isLoadingMore, setLoading] = useState(false);
  const [moreError, setError] = useState<ApiError>();
  const { data } = first;
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    setLater(EMPTY_PAGE);
    setError(undefined);
  }, [data]);
  const next = nextOf(later.data.length > 0 ? later : data);
  const load = async (): Promise<void> => {
    setLoading(true);
    setError(undefined);
    try {
      const mark = path.includes('?') ? '&' : '?';
      const page = await call<Page<T>>(`${path}${mark}${next}`);
      // The page continues a list that may have been replaced meanwhile.
      if (latest.current !== data) return;
      setLater((before) => ({ ...page, data: [...before.data, ...page.data] }));
    } catch (error) {
      if (latest.current === data) setError(ApiError.of(error));
    } finally {
      setLoading(false);
    }
  };
  return {
    first,
    rows: [...(data?.data ?? []), ...later.data],
    isLoadingMore,
    moreError,
    more: next === undefined ? undefined : () => void load(),
    renew: () => {
      if (later.data.length === 0 && !isLoadingMore) first.reload();
    },
  };
}

const EMPTY_PAGE: Page<never> = { data: [] };

/** The query parameter of the next page; `undefined` after the last page. */
function nextOf(page: Page<unknown> | undefined): string | undefined {
  if (page?.has_more === true) return `after=${encodeURIComponent(page.last_id ?? '')}`;
  const { nextCursor } = page ?? {};
  return nextCursor ? `cursor=${encodeURIComponent(nextCursor)}` : undefined;
}
