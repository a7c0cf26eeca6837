/** API keys: what each may do and has spent, making one, changing one, revoking one. */
import { useSignal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { call, query } from '../api.ts';
import { usdText } from '../format.ts';
import { forgetKeyNames } from '../lookups.ts';
import { useRenewal } from './overview.tsx';
import { toast } from '../parts/announce.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Bar, State, Time } from '../parts/values.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, figure } from '../parts/table.tsx';
import { PERIODS, SO_FAR } from '../periods.ts';
import { useCall } from '../resource.ts';
import { session } from '../session.ts';
import type { ApiKey } from '../shapes.ts';
import { KeyForm } from './key-form.tsx';

type Window =
  | { readonly kind: 'create' }
  | { readonly kind: 'change'; readonly key: ApiKey }
  | { readonly kind: 'revoke'; readonly key: ApiKey }
  | { readonly kind: 'made'; readonly made: NewKey };

/** A key whose secret is shown once. */
export interface NewKey {
  readonly apiKey: string;
  readonly description: string;
}

export function Keys() {
  const keys = useCall<{ data: readonly ApiKey[] }>('/api_keys');
  const open = useSignal<Window | undefined>(undefined);
  const close = (): void => {
    open.value = undefined;
  };
  const changed = (next: Window | undefined): void => {
    open.value = next;
    forgetKeyNames();
    keys.reload();
  };
  useRenewal(keys.reload);
  return (
    <>
      <PageHead
        title="Keys"
        lead="A key is a secret that spends this account's credit, within its caps."
      >
        <button type="button" class="primary" onClick={() => (open.value = { kind: 'create' })}>
          Create a key
        </button>
      </PageHead>
      <Loaded from={keys}>
        {({ data }) =>
          data.length === 0 ? (
            <Empty title="There is no key yet">
              <p>Programs need one: create it, copy it, and keep it on your server.</p>
            </Empty>
          ) : (
            <KeyTable keys={data} act={(window) => (open.value = window)} />
          )
        }
      </Loaded>
      {open.value !== undefined && (
        <KeyWindow window={open.value} close={close} changed={changed} />
      )}
    </>
  );
}

function KeyTable({ keys, act }: { keys: readonly ApiKey[]; act: (window: Window) => void }) {
  const names = new Map(keys.map(({ id, description }) => [id, description]));
  const columns: readonly Column<ApiKey>[] = [
    {
      name: 'Key',
      show: (key) => (
        <>
          <strong class="text">{key.description}</strong>
          <span class="under num">
            <State value={key.apiKeyType} tone={key.apiKeyType === 'ADMIN' ? 'warn' : ''} />{' '}
            <span class="num">…{key.last6Chars}</span>{' '}
            {key.id === session.value?.keyId && <State value="in use here" tone="good" />}
          </span>
          {key.parentId !== null && (
            <span class="under text">
              made by {names.get(key.parentId) ?? 'a key that is gone'}
            </span>
          )}
        </>
      ),
    },
    { name: 'Used of its caps', show: (key) => <Caps apiKey={key} /> },
    figure('Last 7 days', ({ usage }) => usdText(usage.trailingSevenDays.usd), 'wide'),
    { name: 'May use', kind: 'wide', show: (key) => <Scope apiKey={key} /> },
    {
      name: 'Last used',
      kind: 'wide',
      show: ({ lastUsedAt }) =>
        lastUsedAt === null ? <span class="soft">never</span> : <Time iso={lastUsedAt} ago />,
    },
    {
      name: 'Expires',
      kind: 'wide',
      show: ({ expiresAt }) =>
        expiresAt === null ? <span class="soft">never</span> : <Time iso={expiresAt} />,
    },
    {
      name: 'Actions',
      kind: 'figure',
      show: (key) => (
        <span class="row end">
          <button type="button" class="small" onClick={() => act({ kind: 'change', key })}>
            Change
          </button>
          <button type="button" class="small danger" onClick={() => act({ kind: 'revoke', key })}>
            Revoke
          </button>
        </span>
      ),
    },
  ];
  return <Table label="API keys" columns={columns} rows={keys} keyOf={({ id }) => id} />;
}

export function Caps({ apiKey }: { apiKey: ApiKey }) {
  const { consumptionLimits, currentPeriodUsage, limitPeriod } = apiKey;
  const caps = (['usd', 'diem'] as const).flatMap((currency) => {
    const cap = consumptionLimits[currency];
    return cap === null ? [] : [{ currency, cap, used: Number(currentPeriodUsage[currency]) }];
  });
  if (caps.length === 0) {
    return (
      <span class="soft">
        <span class="num">{usdText(currentPeriodUsage.usd)}</span> {SO_FAR[limitPeriod]}, no cap
      </span>
    );
  }
  return (
    <>
      {caps.map(({ currency, cap, used }) => (
        <div key={currency} class="cap">
          <Bar
            part={used}
            whole={cap}
            label={`Used of the cap in ${currency === 'usd' ? 'USD' : 'daily credit'}`}
          />
          <span class="num under">
            {usdText(used)} of {usdText(cap)} {PERIODS[limitPeriod]}
            {currency === 'diem' && ', daily credit'}
          </span>
        </div>
      ))}
    </>
  );
}

function Scope({ apiKey: { models, modelPrivacy } }: { apiKey: ApiKey }) {
  const privacy = { ALL: '', PRIVATE_TEXT: ', text private', PRIVATE_ONLY: ', private only' }[
    modelPrivacy
  ];
  const words =
    models === null ? 'every model' : models.length === 1 ? models[0] : `${models.length} models`;
  return (
    <span class="soft" title={models?.join(', ')}>
      {words}
      {privacy}
    </span>
  );
}

interface KeyWindowProps {
  readonly window: Window;
  readonly close: () => void;
  readonly changed: (next: Window | undefined) => void;
}

function KeyWindow({ window, close, changed }: KeyWindowProps) {
  if (window.kind === 'made') return <MadeKey made={window.made} close={close} />;
  if (window.kind === 'revoke')
    return <RevokeKey apiKey={window.key} close={close} revoked={() => changed(undefined)} />;
  const given = window.kind === 'change' ? window.key : undefined;
  return (
    <Overlay title={given === undefined ? 'Create a key' : 'Change the key'} close={close}>
      <KeyForm
        given={given}
        save={async (body) => {
          if (given !== undefined) {
            await call('/api_keys', { method: 'PATCH', body: { id: given.id, ...body } });
            toast('The key is changed');
            changed(undefined);
            return;
          }
          const { data } = await call<{ data: NewKey }>('/api_keys', { method: 'POST', body });
          changed({ kind: 'made', made: data });
        }}
      />
    </Overlay>
  );
}

/** The one time that the secret is shown. */
export function MadeKey({ made, close }: { made: NewKey; close: () => void }) {
  const { apiKey, description } = made;
  return (
    <ShownOnce
      title="The key is made"
      secret={apiKey}
      close={close}
      about={
        <>
          <strong class="text">{description}</strong> is ready. Its secret is shown only now and
          stored nowhere: copy it before you close this.
        </>
      }
    />
  );
}

interface RevokeKeyProps {
  readonly apiKey: ApiKey;
  readonly close: () => void;
  readonly revoked: () => void;
}

function RevokeKey({ apiKey, close, revoked }: RevokeKeyProps) {
  const [isSure, setSure] = useState(false);
  const isOwn = apiKey.id === session.value?.keyId;
  return (
    <Confirm
      title="Revoke the key"
      does="Revoke"
      says="The key is revoked"
      isReady={isSure}
      close={close}
      run={() => call(`/api_keys${query({ id: apiKey.id })}`, { method: 'DELETE' })}
      done={revoked}
    >
      <p>
        Requests with <strong class="text">{apiKey.description}</strong> (…{apiKey.last6Chars}) are
        refused from that moment on, and so are those with keys that it made. This cannot be undone;
        what it has spent stays in the history.
      </p>
      {isOwn && (
        <p class="notice warn">
          You are signed in with this key: revoking it ends this session too.
        </p>
      )}
      <label class="check">
        <input
          type="checkbox"
          checked={isSure}
          onChange={(event) => setSure(event.currentTarget.checked)}
        />
        Nothing that I need uses it any more
      </label>
    </Confirm>
  );
}
