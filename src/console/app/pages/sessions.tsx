/** The sessions page: lists and ends the sessions of this key, wallet or member. */
import { call } from '../api.ts';
import { toast, toastError } from '../parts/announce.tsx';
import { useAction } from '../parts/form.tsx';
import { KeyName } from '../parts/names.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Id, State, Time } from '../parts/values.tsx';
import { type Column, LoadedTable } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { signOut } from '../session.ts';
import type { SessionListResponse } from '../shapes.ts';

type SessionItem = SessionListResponse['data'][number];

export function Sessions() {
  const sessions = useCall<SessionListResponse>('/console/sessions');
  const action = useAction();
  const end = async (item: SessionItem): Promise<void> => {
    await action.run(async () => {
      try {
        if (item.isCurrent) return await signOut();
        await call(`/console/sessions/${encodeURIComponent(item.id)}`, { method: 'DELETE' });
        toast('The session was ended');
        sessions.reload();
      } catch (error) {
        toastError(error);
      }
    });
  };
  const columns: readonly Column<SessionItem>[] = [
    {
      name: 'Browser',
      show: ({ userAgent, isCurrent }) => (
        <>
          <strong title={userAgent ?? undefined}>{browserOf(userAgent)}</strong>{' '}
          {isCurrent && <State value="this session" tone="good" />}
        </>
      ),
    },
    {
      name: 'Signed in with',
      show: ({ kind, wallet, keyId, email }) => (
        <span class="soft">
          {kind} {email ?? (keyId === null ? <Id value={wallet ?? ''} /> : <KeyName id={keyId} />)}
        </span>
      ),
    },
    {
      name: 'Address',
      kind: 'wide',
      show: ({ address }) => <span class="num">{address ?? '–'}</span>,
    },
    { name: 'Created', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
    { name: 'Last used', kind: 'wide', show: ({ lastUsedAt }) => <Time iso={lastUsedAt} ago /> },
    { name: 'Expires', kind: 'wide', show: ({ expiresAt }) => <Time iso={expiresAt} ago /> },
    {
      name: 'Action',
      kind: 'figure',
      show: (item) => (
        <span class="row end">
          <button
            type="button"
            class="small"
            disabled={action.isRunning}
            onClick={() => void end(item)}
          >
            {item.isCurrent ? 'Sign out' : 'End'}
          </button>
        </span>
      ),
    },
  ];
  return (
    <>
      <PageHead
        title="Sessions"
        lead="Browsers that are signed in. Ending a session takes effect immediately."
      />
      <LoadedTable label="Sessions" from={sessions} columns={columns} keyOf={({ id }) => id} />
    </>
  );
}

const BROWSERS = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'];
const NAMES: Readonly<Record<string, string>> = { Edg: 'Edge', OPR: 'Opera' };
const SYSTEMS = ['Windows', 'Android', 'iPhone', 'iPad', 'Mac OS', 'Linux'];

/** A short name such as `Chrome on Linux`. */
function browserOf(userAgent: string | null): string {
  if (userAgent === null || userAgent === '') return 'Unknown';
  const browser = BROWSERS.find((name) => userAgent.includes(`${name}/`));
  const system = SYSTEMS.find((name) => userAgent.includes(name));
  const name = browser === undefined ? userAgent.slice(0, 24) : (NAMES[browser] ?? browser);
  return system === undefined ? name : `${name} on ${system}`;
}
