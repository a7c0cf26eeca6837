/** The drawer of a webhook: its thresholds, secret, messages and actions. */
import { useSignal } from '@preact/signals';
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { useCursorList } from '../cursor-list.ts';
import { toast } from '../parts/announce.tsx';
import { CodeBlock } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { ErrorMessage, useAction } from '../parts/form.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { CopyId, Facts, OpenButton, State, Time } from '../parts/values.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Empty } from '../parts/loaded.tsx';
import { KeyName } from '../parts/names.tsx';
import { type Column, CursorTable } from '../parts/table.tsx';
import type { Delivery, SecretWebhook, Thresholds, Webhook } from '../shapes.ts';
import { WebhookForm } from './webhook-form.tsx';

/** The conditions of a webhook, one per line. */
export function Conditions({ thresholds }: { thresholds: Thresholds }) {
  const { balanceUsd, keyLimitPercent, budgetPercent, dailySpendUsd } = thresholds;
  const lines = [
    balanceUsd !== null && `balance below ${usdText(balanceUsd)}`,
    keyLimitPercent !== null && `spend limit of a key used to ${keyLimitPercent} %`,
    budgetPercent !== null && `budget used to ${budgetPercent} %`,
    dailySpendUsd !== null && `daily spending of ${usdText(dailySpendUsd)}`,
  ];
  return <ul class="num">{lines.map((line) => line !== false && <li key={line}>{line}</li>)}</ul>;
}

export function deliveriesPath(id: string): string {
  return `/webhooks/${encodeURIComponent(id)}/deliveries`;
}

const TONES = { delivered: 'good', failed: 'bad', pending: 'warn' } as const;

export function DeliveryState({ delivery: { status } }: { delivery: Delivery }) {
  return <State value={status} />;
}

interface WebhookDrawerProps {
  readonly webhook: Webhook;
  readonly close: () => void;
  readonly changed: () => void;
  /** Called after a test message. */
  readonly sent: () => void;
}

export function WebhookDrawer({ webhook, close, changed, sent }: WebhookDrawerProps) {
  const { id, url, thresholds, paused, createdAt } = webhook;
  const path = `/webhooks/${encodeURIComponent(id)}`;
  const list = useCursorList<Delivery>(`${deliveriesPath(id)}?limit=20`);
  const tested = useSignal<Delivery | undefined>(undefined);
  const opened = useSignal<Delivery | undefined>(undefined);
  const rotated = useSignal<SecretWebhook | undefined>(undefined);
  const action = useAction();
  const test = (): void => {
    tested.value = undefined;
    void action.run(async () => {
      tested.value = await call<Delivery>(`${path}/test`, { method: 'POST' });
      list.first.reload();
      sent();
    });
  };
  const pause = (): void => {
    void action.run(async () => {
      await call(path, { method: 'PATCH', body: { paused: !paused } });
      toast(paused ? 'The webhook is active' : 'The webhook is paused');
      changed();
    });
  };
  return (
    <Overlay kind="drawer" title="Webhook" close={close}>
      <Facts
        of={[
          ['URL', <span class="text">{url}</span>],
          ['Sends at', <Conditions thresholds={thresholds} />],
          paused && ['State', <State value="paused" />],
          ['Created', <Time iso={createdAt} />],
          ['Id', <CopyId value={id} />],
        ]}
      />
      <p class="row">
        <button type="button" class="primary" disabled={action.isRunning} onClick={test}>
          Send a test
        </button>
        <DialogButton label="Change">
          {(shut) => (
            <Overlay title="Change the webhook" close={shut}>
              <WebhookForm
                given={webhook}
                save={async (body) => {
                  await call(path, { method: 'PATCH', body });
                  toast('The webhook was changed');
                  shut();
                  changed();
                }}
              />
            </Overlay>
          )}
        </DialogButton>
        <button type="button" disabled={action.isRunning} onClick={pause}>
          {paused ? 'Resume' : 'Pause'}
        </button>
        <NewSecret path={path} created={(secret) => (rotated.value = secret)} />
        <DialogButton label="Delete" class="danger">
          {(shut) => (
            <Confirm
              title="Delete the webhook"
              label="Delete"
              notice="The webhook was deleted"
              close={shut}
              run={() => call(path, { method: 'DELETE' })}
              done={() => {
                close();
                changed();
              }}
            >
              <p>
                Stops all messages to <strong class="text">{url}</strong> and deletes their history.
              </p>
            </Confirm>
          )}
        </DialogButton>
      </p>
      <ErrorMessage error={action.error} />
      {tested.value !== undefined && <Tested delivery={tested.value} />}
      <section>
        <h3>Messages of the last 40 days</h3>
        <CursorTable
          label="Messages"
          list={list}
          empty={
            <Empty title="No messages yet">
              <p>The server checks the thresholds once a minute. A test is sent immediately.</p>
            </Empty>
          }
          columns={messageColumns((delivery) => (opened.value = delivery))}
          keyOf={(row) => row.id}
        />
      </section>
      {opened.value !== undefined && (
        <Overlay title={opened.value.event} close={() => (opened.value = undefined)}>
          <DeliveryFacts delivery={opened.value} />
          <CodeBlock title="Message" text={JSON.stringify(opened.value.payload, null, 2)} />
        </Overlay>
      )}
      {rotated.value !== undefined && (
        <ShownSecret webhook={rotated.value} close={() => (rotated.value = undefined)} />
      )}
    </Overlay>
  );
}

interface NewSecretProps {
  readonly path: string;
  readonly created: (webhook: SecretWebhook) => void;
}

function NewSecret({ path, created }: NewSecretProps) {
  return (
    <DialogButton label="New secret">
      {(close) => (
        <Confirm
          title="Create a new secret"
          label="Create a new secret"
          cancel="Keep the old secret"
          close={close}
          run={async () => created(await call(`${path}/secret/rotate`, { method: 'POST' }))}
          done={close}
        >
          <p>
            For 24 hours, messages are signed with both secrets, so that you can update the
            receiver.
          </p>
        </Confirm>
      )}
    </DialogButton>
  );
}

/** The result of a test message. */
function Tested({ delivery }: { delivery: Delivery }) {
  const { status, responseStatus, error } = delivery;
  return (
    <p class={`notice ${TONES[status]}`} role="status">
      {status === 'delivered'
        ? `The test was delivered: the URL returned status ${responseStatus}.`
        : status === 'pending'
          ? 'The test is pending. The list below shows its result.'
          : `The test was not delivered. ${error ?? ''}`}
    </p>
  );
}

/** Members of a message about a key or a budget. */
type Subject = Partial<
  Record<'apiKeyId' | 'description' | 'budgetId' | 'tag' | 'value', string | null>
>;

/** The key or the budget of a message; `undefined` for one about the account. */
function subjectOf({ payload }: Delivery) {
  const data = (payload['data'] ?? {}) as Subject; // written by the server
  const { apiKeyId, description, budgetId, tag, value } = data;
  if (apiKeyId) {
    const known = new Map([[apiKeyId, description ?? apiKeyId]]);
    return { kind: 'Key', name: <KeyName id={apiKeyId} known={known} /> };
  }
  if (!budgetId) return undefined;
  const name = tag ? `${tag}: ${value}` : 'All spending';
  return { kind: 'Budget', name: <span title={budgetId}>{name}</span> };
}

/** The response status or the error of a delivery, and its next attempt. */
function Reason({ delivery }: { delivery: Delivery }) {
  const { error, responseStatus, nextAttemptAt, attempts } = delivery;
  const words = error ?? (responseStatus === null ? 'pending' : `status ${responseStatus}`);
  return (
    <span class="under text">
      {words}
      {attempts > 1 && `, sent ${attempts} times`}
      {nextAttemptAt !== null && (
        <>
          , next attempt <Time iso={nextAttemptAt} ago />
        </>
      )}
    </span>
  );
}

function messageColumns(open: (delivery: Delivery) => void): readonly Column<Delivery>[] {
  return [
    {
      name: 'Message',
      show: (delivery) => {
        const subject = subjectOf(delivery);
        return (
          <>
            <OpenButton isStrong open={() => open(delivery)}>
              {delivery.event}
            </OpenButton>
            {subject !== undefined && <span class="under text">{subject.name}</span>}
            <span class="under">
              <Time iso={delivery.createdAt} />
            </span>
          </>
        );
      },
    },
    {
      name: 'State',
      show: (delivery) => (
        <>
          <DeliveryState delivery={delivery} />
          <Reason delivery={delivery} />
        </>
      ),
    },
  ];
}

function DeliveryFacts({ delivery }: { delivery: Delivery }) {
  const { id, attempts, responseStatus, error, createdAt, nextAttemptAt } = delivery;
  const subject = subjectOf(delivery);
  return (
    <Facts
      of={[
        subject !== undefined && [subject.kind, subject.name],
        ['State', <DeliveryState delivery={delivery} />],
        error !== null && ['Error', <span class="text">{error}</span>],
        ['Response status', responseStatus === null ? 'none' : String(responseStatus)],
        ['Attempts', String(attempts)],
        ['Created', <Time iso={createdAt} />],
        nextAttemptAt !== null && ['Next attempt', <Time iso={nextAttemptAt} ago />],
        ['webhook-id', <CopyId value={id} />],
      ]}
    />
  );
}

const VERIFY = `import { Webhook } from 'standardwebhooks';

// Throws if the message is not signed with the secret.
const message = new Webhook(secret).verify(body, headers);`;

export function ShownSecret({ webhook, close }: { webhook: SecretWebhook; close: () => void }) {
  const { secret, previousSecretUntil } = webhook;
  const isNew = previousSecretUntil === undefined;
  return (
    <ShownOnce
      title={isNew ? 'The webhook was created' : 'The new secret'}
      secret={secret}
      close={close}
      about="Messages are signed with this secret as specified by Standard Webhooks. Copy it now, it is not shown again."
    >
      {!isNew && (
        <p>
          Until <Time iso={previousSecretUntil} />, messages are also signed with the previous
          secret.
        </p>
      )}
      <CodeBlock title="Verify a message" text={VERIFY} />
    </ShownOnce>
  );
}
