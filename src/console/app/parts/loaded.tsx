/** Empty, loading and error states of a page. */
import type { ComponentChildren } from 'preact';
import type { ApiError } from '../api.ts';
import type { Resource } from '../resource.ts';
import { durationText } from '../format.ts';
import { signOut } from '../session.ts';
import { Copy } from './values.tsx';

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      {children}
    </div>
  );
}

/** A list without a row that matches its filters. */
export function NothingMatches({ title, clear }: { title: string; clear: () => void }) {
  return (
    <Empty title={title}>
      <button type="button" onClick={clear}>
        Remove the filters
      </button>
    </Empty>
  );
}

export function Loading() {
  return (
    <div class="loading" role="status">
      <span class="unseen">Loading</span>
      <span class="line" />
      <span class="line" />
      <span class="line" />
    </div>
  );
}

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  const isOffline = error.status === 0;
  return (
    <div class="failure" role="alert">
      <p class="title">{isOffline ? 'The server cannot be reached' : error.message}</p>
      <p class="soft">
        {isOffline
          ? 'Check your connection, or wait until the server has restarted. The page keeps its data.'
          : `${error.code}, status ${error.status}`}
        {error.retryAfter !== undefined &&
          `. Try again in ${durationText(error.retryAfter * 1_000)}`}
      </p>
      <p class="row">
        {retry !== undefined && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
        {error.code === 'ADMIN_KEY_REQUIRED' && (
          <button type="button" onClick={() => void signOut().catch(() => undefined)}>
            Sign in with an ADMIN key
          </button>
        )}
        {error.requestId !== undefined && <Copy text={error.requestId} label="Copy request id" />}
      </p>
    </div>
  );
}

interface LoadedProps<T> {
  readonly from: Resource<T>;
  readonly children: (data: T) => ComponentChildren;
}

/** Shows loaded data, placeholder lines before it, and an error above the last data. */
export function Loaded<T>({ from, children }: LoadedProps<T>) {
  const { data, error, reload } = from;
  return (
    <>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {data === undefined ? error === undefined && <Loading /> : children(data)}
    </>
  );
}

export function Notice({ tone = '', children }: { tone?: string; children: ComponentChildren }) {
  return <div class={`notice ${tone}`}>{children}</div>;
}
