/**
 * A drawer at the side of the page, or a dialog in its middle. When it closes, the focus returns to
 * the element that opened it. If that element was removed, it moves to the overlay below or to the
 * content.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';

interface DialogButtonProps {
  readonly label: string;
  readonly class?: string;
  readonly disabled?: boolean;
  readonly children: (close: () => void) => ComponentChildren;
}

export function DialogButton({ label, children, ...button }: DialogButtonProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button {...button} type="button" onClick={() => setOpen(true)}>
        {label}
      </button>
      {isOpen && children(() => setOpen(false))}
    </>
  );
}

interface OverlayProps {
  readonly title: string;
  readonly kind?: 'drawer' | 'dialog';
  /** A click beside the overlay does not close it. */
  readonly staysOpen?: boolean;
  readonly close: () => void;
  readonly children: ComponentChildren;
}

export function Overlay({
  title,
  kind = 'dialog',
  staysOpen = false,
  close,
  children,
}: OverlayProps) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = box.current;
    const opener = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      // After this render, because the page may replace the opener in the same step.
      setTimeout(() => {
        if (document.activeElement !== document.body) return;
        const isThere =
          opener instanceof HTMLElement && opener !== document.body && opener.isConnected;
        const places = document.querySelectorAll<HTMLElement>(
          '#content, dialog[open] header button',
        );
        (isThere ? opener : [...places].at(-1))?.focus();
      });
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={kind}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onMouseDown={(event) => {
        if (event.target === box.current && !staysOpen) close();
      }}
    >
      <div class="inside">
        <header>
          <h2 id={heading}>{title}</h2>
          <button type="button" class="quiet" aria-label="Close" onClick={close}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
