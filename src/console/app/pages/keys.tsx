/** The keys page: API keys with their spend limits; creating, changing and revoking a key. */
import { useSignal } from '@preact/signals';
import type { ComponentChildren, ComponentProps } from 'preact';
import { useState } from 'preact/hooks';
import { call, query } from '../api.ts';
import { type UsdAmount, usdDecimals } from '../format.ts';
import { forgetKeyNames } from '../lookups.ts';
import { toast } from '../parts/announce.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { useRenewal } from '../live.ts';
import { PageHead } from '../parts/page-head.tsx';
import { LabelledBar, State, Time, Usd } from '../parts/values.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, LoadedTable, money } from '../parts/table.tsx';
import { PERIODS, SO_FAR } from '../periods.ts';
import { useCall } from '../resource.ts';
import { can, session } from '../session.ts';
import type { ApiKey, List } from '../shapes.ts';
import { KeyForm } from './key-form.tsx';

export interface NewKey {
  readonly apiKey: string;
  readonly description: string;
}

export function Keys() {
  const keys = useCall<List<ApiKey>>('/api_keys');
  const created = useSignal<NewKey | undefined>(undefined);
  const changed = (): void => {
    forgetKeyNames();
    keys.reload();
  };
  useRenewal(keys.reload);
  return (
    <>
      <PageHead
        title="Keys"
        lead="API keys of this account. A spend limit is the most that a key can spend in a period."
      >
        {can('develop') && (
          <DialogButton label="Create a key" class="primary">
            {(close) => (
              <Overlay title="Create a key" close={close}>
                <KeyForm
                  save={async (body) => {
                    const response = await call<{ data: NewKey }>('/api_keys', {
                      method: 'POST',
                      body,
                    });
                    close();
                    created.value = response.data;
                    changed();
                  }}
                />
              </Overlay>
            )}
          </DialogButton>
        )}
      </PageHead>
      <LoadedTable
        label="API keys"
        from={keys}
        empty={
          <Empty title="No keys yet">
            <p>Create a key for each program that calls the API, and store it on your server.</p>
          </Empty>
        }
        columns={columnsOf(keys.data?.data ?? [], changed)}
        keyOf={({ id }) => id}
      />
      {created.value !== undefined && (
        <CreatedKey created={created.value} close={() => (created.value = undefined)} />
      )}
    </>
  );
}

function columnsOf(keys: readonly ApiKey[], changed: () => void): readonly Column<ApiKey>[] {
  const names = new Map(keys.map(({ id, description }) => [id, description]));
  return [
    {
      name: 'Key',
      show: (key) => (
        <>
          <strong class="text">{key.description}</strong>
          <span class="under num">
            <State value={key.apiKeyType} tone={key.apiKeyType === 'ADMIN' ? 'warn' : ''} />{' '}
            <span class="num">…{key.last6Chars}</span>{' '}
            {key.id === session.value?.keyId && <State value="this session" tone="good" />}
          </span>
          {key.parentId !== null && (
            <span class="under text">created by {names.get(key.parentId) ?? 'a revoked key'}</span>
          )}
        </>
      ),
    },
    capsColumn(),
    money('Last 7 days', ({ usage }) => usage.trailingSevenDays.usd, { isWide: true }),
    { name: 'Models', kind: 'wide', show: (key) => <Scope apiKey={key} /> },
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
      show: (key) =>
        can('develop') &&
        (key.apiKeyType === 'INFERENCE' || can('own')) && (
          <span class="row end">
            <DialogButton label="Change" class="small">
              {(close) => <ChangeKey apiKey={key} close={close} changed={changed} />}
            </DialogButton>
            <DialogButton label="Revoke" class="small danger">
              {(close) => <RevokeKey apiKey={key} close={close} changed={changed} />}
            </DialogButton>
          </span>
        ),
    },
  ];
}

/** The spending of keys beside their caps. */
export function capsColumn(): Column<ApiKey> {
  return {
    name: 'Spent',
    decimals: (rows) => usdDecimals(rows.flatMap(amountsOfCaps)),
    show: (key, decimals) => <Caps apiKey={key} decimals={decimals} />,
  };
}

function amountsOfCaps({ consumptionLimits, currentPeriodUsage }: ApiKey): UsdAmount[] {
  const { usd, diem } = consumptionLimits;
  return [currentPeriodUsage.usd, currentPeriodUsage.diem, usd ?? 0, diem ?? 0];
}

function Caps({ apiKey, decimals }: { apiKey: ApiKey; decimals: number }) {
  const { consumptionLimits, currentPeriodUsage, limitPeriod } = apiKey;
  const caps = (['usd', 'diem'] as const).flatMap((currency) => {
    const cap = consumptionLimits[currency];
    return cap === null ? [] : [{ currency, cap, used: Number(currentPeriodUsage[currency]) }];
  });
  if (caps.length === 0) {
    return (
      <span class="soft">
        <Usd value={currentPeriodUsage.usd} decimals={decimals} /> {SO_FAR[limitPeriod]}, no spend
        limit
      </span>
    );
  }
  return (
    <>
      {caps.map(({ currency, cap, used }) => (
        <LabelledBar
          key={currency}
          part={used}
          whole={cap}
          label={`Used of the spend limit in ${currency === 'usd' ? 'USD' : 'daily credit'}`}
        >
          <Usd value={used} decimals={decimals} /> of <Usd value={cap} decimals={decimals} />{' '}
          {PERIODS[limitPeriod]}
          {currency === 'diem' && ', daily credit'}
        </LabelledBar>
      ))}
    </>
  );
}

function Scope({ apiKey: { models, modelPrivacy } }: { apiKey: ApiKey }) {
  const privacy = { ALL: '', PRIVATE_TEXT: ', text private', PRIVATE_ONLY: ', private only' }[
    modelPrivacy
  ];
  const words =
    models === null ? 'all models' : models.length === 1 ? models[0] : `${models.length} models`;
  return (
    <span class="soft" title={models?.join(', ')}>
      {words}
      {privacy}
    </span>
  );
}

interface KeyProps {
  readonly apiKey: ApiKey;
  readonly close: () => void;
  readonly changed: () => void;
}

function ChangeKey({ apiKey, close, changed }: KeyProps) {
  return (
    <Overlay title="Change the key" close={close}>
      <KeyForm
        given={apiKey}
        save={async (body) => {
          await call('/api_keys', { method: 'PATCH', body: { id: apiKey.id, ...body } });
          toast('The key was changed');
          close();
          changed();
        }}
      />
    </Overlay>
  );
}

export function CreatedKey({ created, close }: { created: NewKey; close: () => void }) {
  const { apiKey, description } = created;
  return (
    <ShownOnce
      title="The key was created"
      secret={apiKey}
      close={close}
      about={
        <>
          Copy the secret of <strong class="text">{description}</strong> now. The server does not
          store it and cannot show it again.
        </>
      }
    />
  );
}

function RevokeKey({ apiKey, close, changed }: KeyProps) {
  const [isSure, setSure] = useState(false);
  const isOwn = apiKey.id === session.value?.keyId;
  return (
    <ConfirmRevocation
      apiKey={apiKey}
      isReady={isSure}
      close={close}
      run={() => call(`/api_keys${query({ id: apiKey.id })}`, { method: 'DELETE' })}
      done={() => {
        close();
        changed();
      }}
    >
      {isOwn && (
        <p class="notice warn">You are signed in with this key. Revoking it signs you out.</p>
      )}
      <label class="check">
        <input
          type="checkbox"
          checked={isSure}
          onChange={(event) => setSure(event.currentTarget.checked)}
        />
        No program that I need uses this key
      </label>
    </ConfirmRevocation>
  );
}

type RevocationProps = Pick<ComponentProps<typeof Confirm>, 'isReady' | 'close' | 'run' | 'done'>;

/** The dialog before a key is revoked; `children` follow its text. */
export function ConfirmRevocation({
  apiKey: { description, last6Chars },
  children,
  ...action
}: RevocationProps & { readonly apiKey: ApiKey; readonly children?: ComponentChildren }) {
  return (
    <Confirm title="Revoke the key" label="Revoke" notice="The key was revoked" {...action}>
      <p>
        The server rejects all further requests with <strong class="text">{description}</strong> (…
        {last6Chars}) and with keys that it created. You cannot undo this. The past usage of the key
        remains visible.
      </p>
      {children}
    </Confirm>
  );
}
