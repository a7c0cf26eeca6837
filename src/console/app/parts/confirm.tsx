/** Asks whether what cannot be undone is meant, and does it. */
import type { ComponentChildren } from 'preact';
import { toast } from './announce.tsx';
import { Refusal, useAction } from './form.tsx';
import { Overlay } from './overlay.tsx';

interface ConfirmProps {
  readonly title: string;
  /** On its button. */
  readonly does: string;
  /** Said when it is done. */
  readonly says?: string;
  /** On the button that leaves all as it is. */
  readonly keeps?: string;
  readonly isReady?: boolean;
  readonly close: () => void;
  /** A refusal of it is shown in the window. */
  readonly run: () => Promise<unknown>;
  readonly done: () => void;
  /** What will happen. */
  readonly children: ComponentChildren;
}

export function Confirm({
  title,
  does,
  says,
  keeps = 'Keep it',
  isReady = true,
  close,
  run,
  done,
  children,
}: ConfirmProps) {
  const action = useAction();
  const confirm = (): void => {
    void action.run(async () => {
      await run();
      if (says !== undefined) toast(says);
      done();
    });
  };
  return (
    <Overlay title={title} close={close}>
      {children}
      <Refusal error={action.error} />
      <p class="row end">
        <button type="button" onClick={close}>
          {keeps}
        </button>
        <button
          type="button"
          class="danger"
          disabled={!isReady || action.isRunning}
          onClick={confirm}
        >
          {does}
        </button>
      </p>
    </Overlay>
  );
}
