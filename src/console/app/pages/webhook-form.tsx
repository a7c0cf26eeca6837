/** The form of a webhook, for creating and changing one. */
import { useState } from 'preact/hooks';
import { ActionForm, AmountField, PercentField, TextField, useForm } from '../parts/form.tsx';
import type { Thresholds, Webhook } from '../shapes.ts';

const EVENT_OF: Readonly<Record<keyof Thresholds, string>> = {
  balanceUsd: 'balance.low',
  keyLimitPercent: 'key.limit_reached',
  budgetPercent: 'budget.limit_reached',
  dailySpendUsd: 'spend.daily',
};

/** Returns the thresholds that are set, and their events. */
export function withEvents(thresholds: Partial<Thresholds>) {
  const given = Object.entries(thresholds).filter(([, value]) => value !== null);
  return {
    events: given.map(([name]) => EVENT_OF[name as keyof Thresholds]), // a name of the form
    thresholds: Object.fromEntries(given),
  };
}

/** A missing member was not changed. */
export interface WebhookChange {
  readonly url?: string;
  readonly thresholds: Partial<Thresholds>;
}

interface WebhookFormProps {
  readonly given?: Webhook;
  readonly save: (change: WebhookChange) => Promise<void>;
}

export function WebhookForm({ given, save }: WebhookFormProps) {
  const initial = (name: keyof Thresholds): string => String(given?.thresholds[name] ?? '');
  // Another operator can change the webhook while the form is open.
  const [seen] = useState({
    url: given?.url ?? '',
    balanceUsd: initial('balanceUsd'),
    keyLimitPercent: initial('keyLimitPercent'),
    budgetPercent: initial('budgetPercent'),
    dailySpendUsd: initial('dailySpendUsd'),
  });
  const { action, values, field } = useForm(seen);
  const submit = (): void => {
    const names = Object.keys(EVENT_OF) as (keyof Thresholds)[]; // those of the table
    const thresholds = names
      .filter((name) => values[name] !== seen[name])
      .map((name) => [name, values[name].trim() === '' ? null : Number(values[name])]);
    const url = values.url === seen.url ? {} : { url: values.url.trim() };
    void action.run(() => save({ ...url, thresholds: Object.fromEntries(thresholds) }));
  };
  const threshold = (name: keyof Thresholds) => field(name, `thresholds.${name}`);
  return (
    <ActionForm action={action} submit={submit} label={given === undefined ? 'Create' : 'Save'}>
      <TextField
        {...field('url')}
        label="URL"
        hint="A public http or https URL that accepts POST requests."
        required
      />
      <h3>Send a message at</h3>
      <div class="fields-row">
        <AmountField {...threshold('balanceUsd')} label="Balance below, in USD" />
        <AmountField {...threshold('dailySpendUsd')} label="Daily spending, in USD" />
      </div>
      <div class="fields-row">
        <PercentField
          {...threshold('keyLimitPercent')}
          label="Used spend limit of a key, in percent"
        />
        <PercentField {...threshold('budgetPercent')} label="Used budget, in percent" />
      </div>
      <p class="hint">
        Leave a field empty to send no message. Choose 90 percent or less for spend limits and
        budgets, because requests can be rejected before the last percent is used.
      </p>
    </ActionForm>
  );
}
